"""Django in the test's own process: configured once, and on the database of one test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django import VERSION
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

from cronledger.rules.remedies import PROGRAM

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
            *([] if VERSION >= (6, 0) else ["django_tasks"]),
            SHOP,
        ],
        LOGGING_CONFIG=None,
        ROOT_URLCONF=f"{SHOP}.urls",
        SECRET_KEY="of tests",
        TASKS={
            "default": {
                "BACKEND": "cronledger.contrib.django.tasks.CronledgerBackend",
                "QUEUES": ["default", "mail"],
            }
        },
        TEMPLATES=[
            {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}
        ],
        TIME_ZONE="America/New_York",
        USE_TZ=True,
    )
    django.setup()
    PROGRAM.name = "cronledger"  # other tests of this process show remedies without Django


@contextmanager
def on_database(url: str, **more: Any) -> Iterator[dict[str, Any]]:
    """Let the default connections of all threads lead to `url`. Yield their settings."""
    configure()
    handler: Any = connections
    found = handler.settings["default"]
    before = dict(found)
    found.update(database(url), **more)
    _forget(handler)
    try:
        yield found
    finally:
        _forget(handler)
        found.clear()
        found.update(before)


def _forget(handler: Any) -> None:
    """Close the connection of this thread. The next one is made by the settings of that time."""
    handler.close_all()
    if hasattr(handler._connections, "default"):
        del handler["default"]
