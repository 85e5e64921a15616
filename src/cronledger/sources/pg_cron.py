"""Read the jobs of pg_cron from its table: each becomes a job that runs the same SQL."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cronledger.rules import cron, secrets
from cronledger.rules.field_types import NO_LIMIT
from cronledger.sources import observed
from cronledger.sources.crontab_words import time_fields
from cronledger.sources.imported import (
    Entry,
    Import,
    Kind,
    Note,
    NotImportedError,
    Source,
    Table,
    slug_of,
    unique,
)
from cronledger.sources.pg_cron_history import LABEL

# Older versions of pg_cron have no jobname. Row security shows others than superusers their own.
ROWS = """\
SELECT jobid, to_jsonb(job) ->> 'jobname', schedule, command, nodename, database, username, active
  FROM cron.job ORDER BY jobid"""
ZONE = "SELECT coalesce(current_setting('cron.timezone', true), 'GMT'), current_database()"

_SECONDS = re.compile(r"\s*([0-9]{1,9})\s*seconds?\s*", re.IGNORECASE)
_MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_UTC = ("GMT", "UTC", "Etc/UTC")
_NEVER = ("@yearly", "@annually")
_COMMENTS = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_OUTSIDE = re.compile(
    r"VACUUM\b|ALTER\s+SYSTEM\b|CALL\b|DO\b.*\b(?:COMMIT|ROLLBACK)\b|(?:CREATE|DROP)\s+(?:DATABASE|TABLESPACE)\b|BEGIN\b|"
    r"START\s+TRANSACTION\b|(?:CREATE\s+(?:UNIQUE\s+)?INDEX|DROP\s+INDEX|REINDEX\b.*?)\s+"
    r"CONCURRENTLY\b|REINDEX\s+(?:\(.*?\)\s*)?(?:DATABASE|SYSTEM|SCHEMA)\b|CLUSTER\s*;?\s*$",
    re.IGNORECASE | re.DOTALL,
)

HEADER = (
    "A replica runs sql in the database of the ledger, in one transaction, with its own role. What "
    "belongs to another database, or cannot run in a transaction, is a command for psql.",
    'overlap = "wait": as in pg_cron, a run waits while an earlier one still runs. Pg_cron starts '
    "each run that waited; here one that waits longer than grace is a skip, and is recorded.",
    'catch_up = "skip": as in pg_cron, runs that were missed do not start later.',
    "A time that a clock change skips does not run, and one that it repeats runs twice: dst_gap and"
    " dst_fold.",
)

OBSERVED_HEADER = (
    *observed.HEADER,
    "Either call `cronledger import pg_cron --history` every 15 s, which reads the history of "
    "pg_cron, or change the commands. The label pg_cron is the jobid.",
    "The comment of each job is a statement that changes its command. The new command commits the "
    "report of the start, runs and commits the SQL, and reports the end, even if the SQL fails. A "
    "report that fails, or waits for a lock for 2 s, is a warning in the log of the server, and "
    "the SQL runs all the same. The role of the job needs USAGE on the schema of the ledger, and "
    "EXECUTE on observe_start and observe_end. These commands do not need CRONLEDGER_DATABASE_URL.",
)
REPORTED = """\
DO {quote}
DECLARE
    key     constant text := gen_random_uuid();
    problem text;
    state   text;
BEGIN
    BEGIN
        SET LOCAL lock_timeout = '2s';
        PERFORM {schema}.observe_start({name}, run_key => key, source => 'pg_cron');
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'cronledger has no report of the start: %', sqlerrm;
    END;
    COMMIT;
    BEGIN
        EXECUTE {command};
        SET CONSTRAINTS ALL IMMEDIATE;
    EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
        problem := sqlerrm;
        state := sqlstate;
    END;
    COMMIT;
    BEGIN
        SET LOCAL lock_timeout = '2s';
        PERFORM {schema}.observe_end({name}, run_key => key, error => problem, source => 'pg_cron');
    EXCEPTION WHEN query_canceled OR OTHERS THEN
        RAISE WARNING 'cronledger has no report of the end: %', sqlerrm;
    END;
    COMMIT;
    IF state IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = problem, ERRCODE = state;
    END IF;
END {quote}"""
"""The command of an observed job. It is one statement, because pg_cron runs several statements in
one transaction, in which a failure would also roll back the report of the start. Each COMMIT ends
what SET LOCAL sets. A COMMIT cannot be caught, so the constraints that it would check are checked
before it."""


_GRACE = "2m"
"""Pg_cron starts runs late if too many run, and the history is read some time after a start."""


class Row(NamedTuple):
    """A row of `cron.job`."""

    id: int
    name: str | None
    schedule: str
    command: str
    host: str
    database: str
    user: str
    active: bool


@dataclass(frozen=True, slots=True)
class Options:
    """`timezone`: `cron.timezone`. `database`: that of the ledger.

    `as_user`: SQL changes to the role of its job. `secret_names`: names of secret variables.
    `observe`: pg_cron keeps the jobs, and reports their runs to the ledger in `schema`.
    """

    database: str
    timezone: str = "UTC"
    as_user: bool = False
    secret_names: Sequence[str] = ()
    observe: bool = False
    schema: str = "cronledger"


def convert(rows: Iterable[Row], options: Options, *, source: str = "cron.job") -> Import:
    """Return the jobs of these rows."""
    taken: set[str] = set()
    entries = tuple(_Reader(row, options).entry(taken) for row in rows)
    header = OBSERVED_HEADER if options.observe else HEADER
    return Import("pg_cron", (Source(source, entries),), header)


class _Reader:
    """Reads one row, and collects the notes."""

    def __init__(self, row: Row, options: Options) -> None:
        self.row, self.options = row, options
        self.notes: list[Note] = []

    def note(self, message: str, kind: Kind = "info") -> None:
        self.notes.append(Note(message, kind))

    def entry(self, taken: set[str]) -> Entry:
        row = self.row
        jobs: dict[str, Table] = {}
        wrapper = ""
        try:
            name = unique(slug_of(row.name or "") or f"cron-job-{row.id}", taken)
            if self.options.observe:
                jobs[name] = {**self._schedule(), "grace": _GRACE, "labels": {LABEL: str(row.id)}}
                wrapper = self._reported(name)
            else:
                jobs[name] = {**self._schedule(), **self._work(), **_POLICIES}
            taken.add(name)
        except (NotImportedError, cron.CronError) as why:
            self.note(str(why), "dropped")
        call = ", ".join(_quoted(text) for text in (row.name, row.schedule, row.command) if text)
        text = f"schedule({call}), database {row.database}, username {row.user}"
        return Entry(f"cron.job:{row.id}", text, jobs, tuple(self.notes), wrapper)

    def _schedule(self) -> Table:
        written = self._written(self.row.schedule.strip())
        every = written.startswith("@every")
        zone = "UTC" if self.options.timezone in _UTC else self.options.timezone
        cron.parse(written, timezone=zone)
        clock = {} if every or zone == "UTC" else {"dst_gap": "skip", "dst_fold": "both"}
        if self.row.active:
            return {"schedule": written, "timezone": zone, **clock}
        self.note(
            "the job is not active, so it has no schedule; to resume it, add schedule = "
            f"{written!r}",
            "changed",
        )
        return {"timezone": zone}

    def _written(self, text: str) -> str:
        if found := _SECONDS.fullmatch(text):
            if not 0 < int(found[1]) < 60:
                raise NotImportedError(f"schedule {text!r} is not between 1 and 59 seconds")
            if not self.options.observe:
                self.note(f"{text!r} counts from the last start; here it fires on a fixed grid")
            return f"@every {found[1]}s"
        if text in ("@reboot", "@restart"):
            raise NotImportedError(
                f"{text} has no equivalent, because no job fires when a database server starts; "
                "run `cronledger trigger` when the server has started"
            )
        if text.startswith("@"):
            if text not in _MACROS:
                raise NotImportedError(f"{text!r} is not a macro; use one of {', '.join(_MACROS)}")
            if text in _NEVER and not self.options.observe:
                self.note(
                    f"pg_cron 1.6 sets no month for {text}, so it does not start; here it does"
                )
            return text
        fields = text.split()
        if len(fields) != 5:
            raise NotImportedError(f"schedule {text!r} has {len(fields)} fields; use five")
        if "~" in text:
            raise NotImportedError(f"schedule {text!r} contains ~, which pg_cron refuses")
        last = fields[2] == "$"
        if last:
            fields[2] = "1"
        fields = time_fields(" ".join(fields)).split()
        if last:
            fields[2] = "L"
            if self.options.timezone not in _UTC:
                self.note("pg_cron does not start $ in the first hour of a day of 25 hours")
        return " ".join(fields)

    def _is_outside(self) -> bool:
        """Return whether the command may not run in a transaction."""
        begin = _COMMENTS.match(self.row.command)
        return _OUTSIDE.match(self.row.command, begin.end() if begin else 0) is not None

    def _reported(self, name: str) -> str:
        """Return the statement that makes the command report its run; empty: it cannot report."""
        row = self.row
        elsewhere = row.database != self.options.database
        if self._is_outside() or elsewhere:
            why = (
                f"belongs to database {row.database}, which does not contain the ledger"
                if elsewhere else "may not run in a transaction"
            )  # fmt: skip
            self.note(f"the command {why}, so it cannot report its runs; use --history", "changed")
            return ""
        statement = REPORTED.format(
            name=_quoted(name), command=_dollars(row.command, "statement"),
            quote=_delimiter(row.command, "observe"), schema=_identifier(self.options.schema),
        )  # fmt: skip
        return f"SELECT cron.alter_job({row.id}, command => {_dollars(statement, 'command')});"

    def _work(self) -> Table:
        row = self.row
        if not row.command.strip():
            raise NotImportedError("the command is empty; add one")
        if secrets.has_password(row.command):
            self.note(f"the command contains a URL with a password, {secrets.STORED}")
        if row.host not in ("", "localhost", "127.0.0.1", "::1") and not row.host.startswith("/"):
            self.note(f"pg_cron runs it on host {row.host}; add it to the connection", "changed")
        role = _identifier(row.user)
        if not self.options.as_user:
            self.note(
                f"pg_cron runs it as {row.user}, but a replica uses its own role; grant it "
                f"{row.user}, and import with --as-user",
                "changed",
            )
        outside = self._is_outside()
        if row.database == self.options.database and not outside:
            change = f"SET LOCAL ROLE {role};\n" if self.options.as_user else ""
            return {"sql": change + row.command}
        if outside:
            self.note("it may not run in a transaction, so psql runs it")
        else:
            self.note(f"it belongs to database {row.database}, so psql runs it")
        self.note("psql needs a connection: set host and role in --dbname", "changed")
        change_words = ["--command", f"SET ROLE {role}"] if self.options.as_user else []
        return {
            "command": [
                "psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--dbname=dbname={row.database}",
                *change_words, "--command", row.command,
            ]
        }  # fmt: skip


_POLICIES: dict[str, Any] = {"overlap": "wait", "catch_up": "skip", "run_timeout": NO_LIMIT}


def _delimiter(text: str, tag: str) -> str:
    """Return a delimiter of a string that is not in `text`: `$tag$`, with a number if necessary."""
    number = 1
    delimiter = f"${tag}$"
    while delimiter in text:
        number += 1
        delimiter = f"${tag}{number}$"
    return delimiter


def _dollars(text: str, tag: str) -> str:
    """Return `text` unchanged as an SQL constant between dollar quotes."""
    delimiter = _delimiter(f"{text}$", tag)
    return f"{delimiter}{text}{delimiter}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
