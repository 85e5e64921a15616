"""The setting CRONLEDGER of a Django project."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from cronledger.rules.problems import ConfigurationError, Problem, nearest, shown
from cronledger.settings import Settings

SETTING = "CRONLEDGER"
WHERE = "the Django settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The values of the setting CRONLEDGER, whose keys are these names in upper case.

    `name`: the source to which the jobs of the project belong. `database`: the alias in DATABASES
    of the ledger's database. `lifespan` and `middleware`: those of the App, as dotted paths.
    """

    name: str
    database: str = DEFAULT_DB_ALIAS
    lifespan: str | None = None
    middleware: tuple[str, ...] = ()


def load() -> Options:
    """Return the options of this project. Raises ConfigurationError with every problem."""
    given = getattr(settings, SETTING, {})
    if not isinstance(given, Mapping):
        raise ConfigurationError([_problem(None, given, "is not a dict", _EXAMPLE)])
    problems = list(_problems(given))
    if problems:
        raise ConfigurationError(problems)
    values = {key.lower(): value for key, value in given.items()}
    return Options(**{**values, "middleware": tuple(values.get("middleware", ()))})


@cache
def schema() -> str:
    """Return the schema of the ledger, read at the first call. Raises ConfigurationError."""
    return Settings.load().schema_name


def alias() -> str:
    """Return the alias of the ledger's database. Raises ConfigurationError."""
    return load().database


_EXAMPLE = f'write {SETTING} = {{"NAME": "shop"}}, with a name that is unique in the ledger'
_KEYS = {field.name.upper() for field in fields(Options)}
_TEXTS = ("NAME", "DATABASE", "LIFESPAN")


def _problems(given: Mapping[str, Any]) -> list[Problem]:
    found = [
        _problem(key, None, "is not an option", nearest(str(key), _KEYS))
        for key in given.keys() - _KEYS
    ]
    if "NAME" not in given:
        found.append(_problem("NAME", None, "is not set", _EXAMPLE))
    found += [
        _problem(key, given[key], "is not a text", "write a text that is not empty")
        for key in _TEXTS
        if key in given and not (isinstance(given[key], str) and given[key])
    ]
    middleware = given.get("MIDDLEWARE", ())
    if not isinstance(middleware, list | tuple) or not all(isinstance(x, str) for x in middleware):
        remedy = 'write it like ["shop.middleware.timed"]'
        found.append(_problem("MIDDLEWARE", middleware, "is not a list of dotted paths", remedy))
    database = given.get("DATABASE")
    if isinstance(database, str) and database and database not in connections:
        remedy = nearest(database, set(connections))
        found.append(_problem("DATABASE", database, "is not an alias in DATABASES", remedy))
    return found


def _problem(key: str | None, value: object, message: str, remedy: str) -> Problem:
    field = SETTING if key is None else f"{SETTING}[{key!r}]"
    text = None if value is None else shown(value)
    return Problem(where=WHERE, field=field, value=text, message=message, remedy=remedy)
