"""cronledger in Django: `INSTALLED_APPS = [..., "cronledger.contrib.django"]`.

`jobs` declares jobs, `project` discovers those of all installed apps, and the management command
`cronledger` runs and checks them. `admin` shows the ledger, `tasks` is a backend for
`django.tasks`, and `testing` creates the ledger in test databases.
"""
