"""The jobs of all installed apps: the source `cronledger.contrib.django.project:app`.

Its import sets Django up, unless that was done, and imports the module `jobs` of each installed
app that has one. If TASKS has a backend of cronledger, the modules `tasks` are imported as well.
"""

import django
from django.apps import apps
from django.conf import settings
from django.utils.module_loading import autodiscover_modules, import_string

if not apps.ready:
    django.setup()

from cronledger.contrib.django.jobs import app

__all__ = ["app"]


def _has_tasks() -> bool:
    """Return whether TASKS has a backend of cronledger, or one that is derived from it."""
    names = [given["BACKEND"] for given in getattr(settings, "TASKS", {}).values()]
    classes = [base for name in names for base in import_string(name).__mro__]
    return any(base.__module__ == "cronledger.contrib.django.tasks" for base in classes)


autodiscover_modules("jobs")
if _has_tasks():
    autodiscover_modules("tasks")
    from cronledger.contrib.django.task_jobs import declare_remaining

    declare_remaining()
