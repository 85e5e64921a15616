"""Where a job is declared: file and line, of tables and keys in TOML and of Python functions."""

import inspect
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cronledger.rules.problems import Problem

_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_NOT_THE_USERS = (_OURS, f"{Path(os.__file__).parent}{os.sep}", "<")
_AT_LINE = re.compile(r"\(at line (\d+)")
_KEY = re.compile(r"[^.\[]+")
_LAST_LINE = re.compile(r"\"\"\"|'''|[\]}]")
"""What the last line of a statement of several lines contains."""

Lines = Mapping[tuple[str, ...], int]
"""The line of each table and each key of a file, by its path: ("jobs", "report", "schedule")."""


class Place(NamedTuple):
    """A file, and the line in it, from 1 on; None if the line is unknown."""

    file: str
    line: int | None


def toml_lines(text: str) -> Lines:
    """Return the lines of the tables and keys of `text`, which is valid TOML.

    A statement of TOML is one line, unless a string or an array in it has several. So a statement
    ends with the first line with which it can be parsed. A table without a header of its own has
    the line of its first subtable.
    """
    lines = [f"{line}\n" for line in text.split("\n")]
    found: dict[tuple[str, ...], int] = {}
    implied: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    start = 0
    for number in range(1, len(lines) + 1):
        if number > start + 1 and not _LAST_LINE.search(lines[number - 1]):
            continue
        statement = "".join(lines[start:number])
        try:
            names = _names(tomllib.loads(statement))
        except (ValueError, RecursionError):
            continue
        if statement.lstrip().startswith("["):
            table = names
            found.setdefault(names, start + 1)
            for length in range(1, len(names)):
                implied.setdefault(names[:length], start + 1)
        else:
            for length in range(1, len(names) + 1):
                found.setdefault((*table, *names[:length]), start + 1)
        start = number
    return {**implied, **found}


def _names(statement: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path of the only key of a parsed statement; empty for a comment."""
    names = []
    value: Any = statement
    while isinstance(value, dict) and len(value) == 1:
        ((name, value),) = value.items()
        names.append(name)
    return tuple(names)


def toml_line(lines: Lines, problem: Problem) -> int | None:
    """Return the line of what `problem` names: its key, otherwise its table; None if unknown."""
    if found := _AT_LINE.search(problem.message):
        return int(found[1])
    field = problem.field or ""
    if problem.job is None:
        path = tuple(part.partition("[")[0] for part in field.split("."))
    else:
        path = ("jobs", problem.job, *_KEY.findall(field)[:1])
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def place_of_function(function: Callable[..., Any]) -> Place | None:
    """Return where `function` is defined, its decorators included; None if that is unknown."""
    try:
        inner = inspect.unwrap(function)
        file = inspect.getsourcefile(inner)
        line = inspect.getsourcelines(inner)[1]
    except (OSError, TypeError, ValueError):  # built in, or its file is gone
        return None
    return None if file is None else Place(file, line)


def place_of_error(error: BaseException) -> Place | None:
    """Return the innermost line of the user's code that raised `error`, or None."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return Place(error.filename, error.lineno)
    found = None
    at = error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS) and "site-packages" not in file:
            found = Place(file, at.tb_lineno)
        at = at.tb_next
    return found
