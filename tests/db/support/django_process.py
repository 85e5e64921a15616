"""Django in the test's own process: configured once, and on the database of one test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

SHOP = "tests.db.support.django_shop"
_NAMES = {
    "dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT",
}  # fmt: skip


def database(url: str) -> dict[str, Any]:
    """Return the value of DATABASES for the database at `url`."""
    given = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    known = {_NAMES[key]: given.pop(key) for key in list(given) if key in _NAMES}
    return {"ENGINE": "django.db.backends.postgresql", **known, "OPTIONS": given}


def configure() -> None:
    """Set Django up in this process, unless that was done."""
    if settings.configured:
        return
    settings.configure(
        CRONLEDGER={"NAME": "shop"},
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "replaced"}},
        INSTALLED_APPS=[
            *(f"django.contrib.{app}" for app in ("admin", "auth", "contenttypes", "messages")),
            "cronledger.contrib.django",
            SHOP,
        ],
        LOGGING_CONFIG=None,
        ROOT_URLCONF=f"{SHOP}.urls",
        SECRET_KEY="of tests",
        TEMPLATES=[
            {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}
        ],
        USE_TZ=True,
    )
    django.setup()


@contextmanager
def on_database(url: str) -> Iterator[dict[str, Any]]:
    """Let the default connections of all threads lead to `url`. Yield their settings."""
    configure()
    found = connections["default"].settings_dict
    before = dict(found)
    connections.close_all()
    found.update(database(url))
    try:
        yield found
    finally:
        connections.close_all()
        found.clear()
        found.update(before)
