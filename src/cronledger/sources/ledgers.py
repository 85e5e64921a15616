"""Read the file of several ledgers: the name of each, and how to reach its database.

The file has the table `[ledgers]`. A ledger is a connection string, or a table with the fields of
`_Entry`. `url_env = "NAME"` takes a connection string from the variable NAME, so that the file
needs no secret.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cronledger.rules.problems import ConfigurationError, Problem, problems_of
from cronledger.settings import Dsn, SchemaName, Settings
from cronledger.sources.toml import read_document

TABLE = "ledgers"
FROM_ENVIRONMENT = "_env"
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~-]{1,63}")
"""A step of a path, because the page of each ledger is at `/l/NAME/`."""


class _Entry(BaseModel):
    """How to reach the database of one ledger."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    database_url: Dsn = Field(alias="url")
    listen_url: Dsn | None = None
    web_read_url: Dsn | None = None
    web_act_url: Dsn | None = None
    schema_name: SchemaName = Field("cronledger", alias="schema")
    pgbouncer: bool = Field(False, strict=True)


_URLS = frozenset({"url", "listen_url", "web_read_url", "web_act_url"})
_VARIABLES = {f"{key}{FROM_ENVIRONMENT}": key for key in _URLS}
KEYS = _URLS | _VARIABLES.keys() | {"schema", "pgbouncer"}


def read_ledgers(path: Path) -> dict[str, Any]:
    """Return the entries of the file by name, as written. Raises ConfigurationError."""
    document = read_document(path)
    table = document.get(TABLE)
    names = table if isinstance(table, dict) else {}
    problems = [
        _problem(path, name, "unknown table", f"use only [{TABLE}] in this file")
        for name in document
        if name != TABLE
    ]
    if not names:
        remedy = f'write NAME = "postgresql://…" below [{TABLE}]'
        problems.append(_problem(path, TABLE, "has no ledger", remedy))
    problems += [
        _problem(
            path, f"{TABLE}.{name}", "is not a name of a ledger",
            "use 1 to 63 letters, digits and . _ ~ -",
        )
        for name in names
        if not _NAME.fullmatch(name)
    ]  # fmt: skip
    if problems:
        raise ConfigurationError(problems)
    return names


def settings_of(path: Path, name: str, entry: object, settings: Settings) -> Settings:
    """Return `settings` with the database and the name of this ledger.

    What the entry does not name has its default, because a connection setting of the process is
    that of one ledger. Raises ConfigurationError, which contains no connection string.
    """
    found = _checked(path, name, entry)
    return settings.model_copy(update={**dict(found), "ledger_name": name})


def database_of(path: Path, name: str) -> tuple[str, str]:
    """Return the connection string and the schema of a ledger. Raises ConfigurationError."""
    entries = read_ledgers(path)
    if name not in entries:
        remedy = f"use one of {', '.join(sorted(entries))}"
        raise ConfigurationError([_problem(path, TABLE, f"has no ledger {name!r}", remedy)])
    found = _checked(path, name, entries[name])
    return found.database_url.get_secret_value(), found.schema_name


def _checked(path: Path, name: str, entry: object) -> _Entry:
    field = f"{TABLE}.{name}"
    given = {"url": entry} if isinstance(entry, str) else entry
    if not isinstance(given, dict):
        remedy = 'write NAME = "postgresql://…", or a table with url or url_env'
        problem = _problem(path, field, "is neither a text nor a table", remedy)
        raise ConfigurationError([problem])
    problems = [
        _problem(path, f"{field}.{key}", message, remedy)
        for key, message, remedy in _invalid_variables(given)
    ]
    if problems:
        raise ConfigurationError(problems)
    try:
        return _Entry.model_validate(
            {_VARIABLES.get(k, k): os.environ[v] if k in _VARIABLES else v
             for k, v in given.items()}
        )  # fmt: skip
    except ValidationError as error:
        raise ConfigurationError(
            _problem(path, str(one.field), one.message, _remedy(one))
            for one in problems_of(error, known=KEYS, prefix=f"{field}.")
        ) from None


def _invalid_variables(given: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the key, the message and the remedy of each variable that gives no text."""
    for key, of in _VARIABLES.items():
        if key not in given:
            continue
        variable = given[key]
        if not isinstance(variable, str) or not variable or "\0" in variable:
            yield key, "is not the name of a variable", f'write {key} = "NAME"'
        elif of in given:
            yield key, f"is given, and {of} as well", "use one of them"
        elif not os.environ.get(variable):
            yield key, f"names {variable}, which is not set", "set it to the connection string"


def _remedy(problem: Problem) -> str:
    if problem.message == "is missing":
        return "add url, or url_env with the name of the variable that has it"
    return problem.remedy


def _problem(path: Path, field: str, message: str, remedy: str) -> Problem:
    """Return a problem of the file, without its value, which may be a secret."""
    return Problem(where=str(path), field=field, message=message, remedy=remedy)
