"""The connection string of a database of the Django settings."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from psycopg import conninfo, pq

from cronledger.contrib.django.options import WHERE
from cronledger.rules.problems import ConfigurationError, Problem, shown
from cronledger.settings import PREFIX

_LIBPQ = frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())
_INSTEAD = f"or set {PREFIX}DATABASE_URL to the ledger's database"


def dsn(alias: str) -> str:
    """Return the connection string of `DATABASES[alias]`, with its password.

    Raises ConfigurationError unless it is PostgreSQL with psycopg 3.
    """
    connection = require_usable(alias)
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    if role is not None:
        message = "a replica connects as the USER, and does not assume another role"
        remedy = f"grant the USER the rights of {role!r} on the ledger, {_INSTEAD}"
        raise _refusal(alias, "OPTIONS.assume_role", role, message, remedy)
    try:
        given: dict[str, Any] = connection.get_connection_params()
    except ImproperlyConfigured as error:
        raise _refusal(alias, None, None, str(error), f"correct it, {_INSTEAD}") from error
    return conninfo.make_conninfo(**{k: str(v) for k, v in given.items() if k in _LIBPQ})


def require_usable(alias: str) -> Any:
    """Return Django's connection `alias`. Raises ConfigurationError as `dsn` does."""
    connection = connections[alias]
    engine = connection.settings_dict["ENGINE"]
    if connection.vendor != "postgresql":
        message, remedy = "is not PostgreSQL", "use django.db.backends.postgresql"
        raise _refusal(alias, "ENGINE", engine, message, f"{remedy}, {_INSTEAD}")
    if connection.Database.__name__ != "psycopg":
        message = f"uses {connection.Database.__name__}, not psycopg 3"
        remedy = "uninstall psycopg2, or install psycopg 3 in a version that Django accepts"
        raise _refusal(alias, "ENGINE", engine, message, remedy)
    return connection


def _refusal(
    alias: str, key: str | None, value: object, message: str, remedy: str
) -> ConfigurationError:
    field = f"DATABASES[{alias!r}]" + (f".{key}" if key else "")
    text = None if value is None else shown(value)
    problem = Problem(where=WHERE, field=field, value=text, message=message, remedy=remedy)
    return ConfigurationError([problem])
