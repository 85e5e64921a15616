"""Remedies in the terms of the surface on which a person reads them.

The functions of the ledger write their hints for psql. Commands, clients and the page show the same
hints, and `_TERMS` is the only place that translates them. Remedies that name a command are in
backticks, so that a Django project shows `manage.py cronledger` instead.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


@dataclass(slots=True)
class Program:
    """How a person calls the commands from where this process runs."""

    name: str = "cronledger"


PROGRAM = Program()
"""Django changes its name to `manage.py cronledger`."""


class Surface(Enum):
    """Where a remedy is read: the command line, an exception of a client, or the page."""

    COMMAND = "command"
    CLIENT = "client"
    PAGE = "page"


_Text = str | Callable[[re.Match[str]], str]


@dataclass(frozen=True, slots=True)
class _Term:
    """A term of psql, as a pattern, and its form on each surface."""

    sql: str
    command: _Text
    client: _Text
    page: _Text


_S = r'(?:"(?:[^"]|"")+"|\w+)\.'


def _show_job(found: re.Match[str]) -> str:
    name = found[1].replace("''", "'")
    return f"run `cronledger jobs show {shlex.quote(name)}`"


def _listing(sql: str, command: str, page: str) -> _Term:
    """Return the term for a list. Clients have no method for it, so they name the command."""
    return _Term(sql, f"run `cronledger {command}`", f"run `cronledger {command}`", page)


_TERMS = (
    _listing(rf"run SELECT DISTINCT job_name FROM {_S}job_status", "jobs list", "open Jobs"),
    _Term(
        rf"run SELECT scope_kind, scope_id FROM {_S}job_status WHERE job_name = '((?:[^']|'')*)'",
        _show_job, _show_job, "open the page of the job",
    ),
    _listing(rf"run SELECT name FROM {_S}queue_status", "queues list", "open Runners"),
    _listing(rf"run SELECT name FROM {_S}host_status", "hosts list", "open Runners"),
    _listing(
        rf"run SELECT \* FROM {_S}report_token_status", "report-tokens list",
        "run `cronledger report-tokens list`",
    ),
    _listing(rf"run SELECT \* FROM {_S}source_status", "sources list", "open Runners"),
    _listing(
        rf"run SELECT \* FROM {_S}planned_skip_status", "planned-skips", "open the page of the job"
    ),
    _Term(
        rf"{_S}unskip\((\d+)\)", "`cronledger skip JOB TIME --undo`", r"unskip(\1)",
        "Undo on the page of the job",
    ),
    _listing(rf"run SELECT \* FROM {_S}pause_status", "pauses list", "open Pauses"),
    _Term(
        rf"{_S}end_pause\((\d+)\)", r"`cronledger pauses end \1`", r"`cronledger pauses end \1`",
        "End on the page Pauses",
    ),
    _Term(
        rf"{_S}end_pause\b", "`cronledger pauses end`", "`cronledger pauses end`",
        "End on the page Pauses",
    ),
    _Term(r', such as \{"tier": "batch"\}', "", "", ""),
    _Term(
        rf"{_S}backfill\b", "`cronledger backfill`", "`cronledger backfill`",
        "Backfill on the page of the job",
    ),
    _listing(rf"read {_S}ledger", "executions list", "open Ledger"),
    *(
        _Term(sql, *(3 * [f"`cronledger channels {command}`"]))
        for sql, command in (
            (rf"SELECT name FROM {_S}channel_status", "list"),
            (rf"SELECT \* FROM {_S}delivery_status", "deliveries"),
            (rf"{_S}resume_channel", "resume"),
            (rf"{_S}test_channel", "test"),
        )
    ),
    _Term(rf", or run SELECT \* FROM {_S}maintain_partitions\(\)", "", "", ""),
    _Term(
        rf"{_S}cancel\((\d+)\)", r"`cronledger executions cancel \1`", r"cancel(\1)",
        r"Cancel on the page of execution \1",
    ),
    _Term(rf"{_S}cancel\b", "`cronledger executions cancel`", "cancel()", "Cancel on its page"),
    _Term(rf"{_S}retry\b", "`cronledger executions retry`", "retry()", "Retry on its page"),
    _Term(rf"{_S}trigger\b", "`cronledger trigger`", "trigger()", "Run on the page of the job"),
    _Term(
        "trigger it with force => true", "trigger it with --force", "trigger it with force=True",
        "tick “Run although the job is paused”",
    ),
    # The form of the page has no such choice.
    _Term(
        "(, or use )force => true(: the execution then starts once it is resumed)",
        r"\1--force\2", r"\1force=True\2", "",
    ),
    _Term(
        "use force => true", "use --force", "use force=True",
        "tick “It has ended, and may run again”",
    ),
    _Term("without require_runner", "without --require-runner", "without require_runner",
          "without require_runner"),
    _Term(
        rf"keep executions for longer with {_S}set_retention",
        *(3 * ["keep executions for longer with `cronledger retention set`"]),
    ),
    _Term("; NULL removes the limit", "; `none` removes the limit", "; None removes the limit",
          "; an empty field removes the limit"),
    _Term(
        "key or group_id out", "--key or --group out", "key or group_id out",
        "key or group_id out",
    ),
    _Term(
        "leave due_at out, or key and watermark", "leave --due-at out, or --key and --watermark",
        "leave due_at out, or key and watermark", "leave due_at out, or key and watermark",
    ),
    _Term(
        "`cronledger jobs show` lists", "`cronledger jobs show` lists",
        "`cronledger jobs show` lists", "the page of the job lists",
    ),
    _Term(r"\{target,env,DB_PASSWORD\}", *(3 * ["`target env DB_PASSWORD`"])),
)  # fmt: skip


def named(text: str, program: str | None = None) -> str:
    """Return `text`, with its commands as a person calls them; None: as in this process."""
    program = program or PROGRAM.name
    return text.replace("`cronledger ", f"`{program} ") if program.endswith(" cronledger") else text


def remedy(hint: str, surface: Surface) -> str:
    """Return a hint of the ledger in the terms of this surface."""
    for term in _TERMS:
        hint = re.sub(term.sql, getattr(term, surface.value), hint)
    # The command line names its program itself, as it was called.
    return hint if surface is Surface.COMMAND else named(hint)
