"""What an import makes of another scheduler's jobs, and its text as a `cronledger.toml`.

A source of an import is a file or a database. It has entries, such as a line of a crontab or a
manifest. An entry has its own text, the tables of its jobs, and notes. Every importer returns an
`Import`, and `render` writes it.
"""

import re
import textwrap
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

import tomlkit

from cronledger.rules import cron, secrets
from cronledger.rules.cron_fields import is_reboot
from cronledger.sources.toml import problems_of_table
from cronledger.sources.toml_schema import DIRECTIVE

Kind = Literal["info", "changed", "dropped"]
"""An `info` note is about something that has an equivalent. With a `changed` note, the job differs
from the entry. With a `dropped` note, the entry or a part of it was not imported."""

_NAME_LENGTH = 48
_LEASE = "10m"
"""A restart or a failover of most databases is shorter."""
LEASE_HEADER = (
    f'stale_timeout = "{_LEASE}": a run survives an outage of the database of almost this length, '
    "and the crash of a replica is noticed that much later. Jobs that fire more than once an hour "
    "have the default of 1m, because their next run would wait for it."
)

Table = Mapping[str, Any]
"""The keys and values of a table. A key whose value is None is not written."""


class NotImportedError(ValueError):
    """An entry is invalid or has no equivalent. `str()` names the value and the remedy."""


@dataclass(frozen=True, slots=True)
class Note:
    """A message about an entry."""

    message: str
    kind: Kind = "info"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `place`: where it is, such as `crontab:3`. `jobs`: their tables by name.

    `wrapper`: the text for the other scheduler with which it reports the runs.
    """

    place: str
    text: str
    jobs: Mapping[str, Table] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    wrapper: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One source and its entries in order. `form`: how it was read, such as `user format`."""

    name: str
    entries: tuple[Entry, ...]
    form: str | None = None

    @property
    def jobs(self) -> int:
        """Return the number of jobs."""
        return sum(len(entry.jobs) for entry in self.entries)

    @property
    def dropped(self) -> int:
        """Return the number of notes about something that was not imported."""
        return sum(note.kind == "dropped" for entry in self.entries for note in entry.notes)


@dataclass(frozen=True, slots=True)
class Import:
    """All sources of one import.

    `kind`: the command after `cronledger import`. `header`: sentences about all of the jobs.
    `channels`: the tables of the channels that the jobs name, by name.
    """

    kind: str
    sources: tuple[Source, ...]
    header: Sequence[str] = ()
    channels: Mapping[str, Table] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Return whether every entry has an equivalent."""
        return all(
            note.kind == "info"
            for source in self.sources
            for entry in source.entries
            for note in entry.notes
        )


def lease(schedule: str | None) -> str | None:
    """Return the stale_timeout of a job without a run_timeout; None if it fires often."""
    if schedule is None or is_reboot(schedule):
        return _LEASE
    try:
        period = cron.parse(schedule).shortest_period
    except cron.CronError:  # `checked` reports it
        return None
    return _LEASE if period >= timedelta(hours=1) else None


def checked(imported: Import) -> Import:
    """Return the import without the jobs that a `cronledger.toml` may not have.

    Each of them gets a note with its problems.
    """
    sources = (
        replace(source, entries=tuple(_checked(entry) for entry in source.entries))
        for source in imported.sources
    )
    return replace(imported, sources=tuple(sources))


def _checked(entry: Entry) -> Entry:
    jobs, notes = {}, list(entry.notes)
    for name, table in entry.jobs.items():
        written = {
            key: value.unwrap() if isinstance(value, tomlkit.items.Item) else value
            for key, value in table.items() if value is not None
        }  # fmt: skip
        if problems := problems_of_table(name, written):
            notes.append(Note("; ".join(str(problem) for problem in problems), "dropped"))
        else:
            jobs[name] = table
    return replace(entry, jobs=jobs, notes=tuple(notes))


def render(imported: Import) -> str:
    """Return the text of a `cronledger.toml`: every job, and every note as a comment."""
    names = ", ".join(
        f"{source.name} ({source.form})" if source.form else source.name
        for source in imported.sources
    )
    title = f"Imported by `cronledger import {imported.kind}` from {names}."
    head = _comments([*_wrapped([title]), "", *_wrapped(imported.header)])
    channels = [_table("channels", name, table) for name, table in imported.channels.items()]
    entries = [_entry(entry) for source in imported.sources for entry in source.entries]
    return "\n".join([f"{DIRECTIVE}\n{head}", *channels, *entries])


def _entry(entry: Entry) -> str:
    notes = [
        f"{'not imported' if note.kind == 'dropped' else 'note'}: {note.message}"
        for note in entry.notes
    ]
    lines = [entry.place, *entry.text.strip(" \t\n").split("\n"), *notes]
    if entry.wrapper and entry.jobs:
        lines += ["", "To report its runs:", "", *entry.wrapper.rstrip("\n").split("\n")]
    comments = _comments(lines)
    return comments + "\n".join(_table("jobs", name, table) for name, table in entry.jobs.items())


def _wrapped(sentences: Iterable[str]) -> list[str]:
    return [line for sentence in sentences for line in textwrap.wrap(sentence, 96)]


def _comments(lines: Iterable[str]) -> str:
    return "".join(f"# {printable(line)}".rstrip() + "\n" for line in lines)


def _table(kind: str, name: str, values: Table) -> str:
    table = tomlkit.table()
    for key, value in values.items():
        if value is not None:
            table.add(key, _inline(value) if isinstance(value, Mapping) else value)
    tables = tomlkit.table(is_super_table=True)
    tables.add(name, table)
    return tomlkit.dumps(tomlkit.document().add(kind, tables))


def _inline(values: Table) -> tomlkit.items.InlineTable:
    """Return a table on one line, with those that it contains."""
    table = tomlkit.inline_table()
    for key, value in values.items():
        table.add(key, _inline(value) if isinstance(value, Mapping) else value)
    return table


def printable(text: str) -> str:
    """Return `text` with every control character and lone surrogate written as an escape."""
    return "".join(
        char if char == "\t" or char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )


def slug_of(text: str) -> str:
    """Return the words of `text` in lower case, with hyphens between them."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def unique(slug: str, taken: Container[str]) -> str:
    """Return a name for a job that is not in `taken`: the slug, with a number if necessary.

    A repeated import of a source gives the same names.
    """
    name = slug = slug[:_NAME_LENGTH].rstrip("-")
    number = 1
    while name in taken:
        number += 1
        name = f"{slug}-{number}"
    return name


def secret_remark(name: str, value: str, secret_names: Iterable[str]) -> str | None:
    """Return a message about a variable whose value is probably a secret, otherwise None."""
    if not secrets.has_password(value) and not (
        value and secrets.is_secret_name(name, tuple(secret_names))
    ):
        return None
    return (
        f"{name} is probably a secret, {secrets.STORED}; write "
        f'{{env = "{name}"}} instead of its value, and set {name} in the environment of '
        "the replicas"
    )
