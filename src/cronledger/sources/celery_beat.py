"""The entries of Celery beat as jobs that send the same messages.

`entries_of` reads the `beat_schedule` of a Celery app, and `entries_of_tables` the tables of
django_celery_beat. `convert` makes the jobs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from cronledger.rules import secrets
from cronledger.sources import foreign_values as values
from cronledger.sources import observed
from cronledger.sources.foreign_values import NoEquivalentError
from cronledger.sources.imported import Entry, Import, Note, Source, Table, slug_of, unique

if TYPE_CHECKING:
    from celery import Celery

HANDLER = "cronledger.contrib.celery:send"

HEADER = (
    f'python = "{HANDLER}": each job sends the message of its entry, as beat did, and Celery\'s '
    "workers run the task. The replica needs Celery and the project. An execution is a SUCCESS "
    "when the message is sent; the result of the task stays in Celery.",
    'catch_up = "latest": like beat, a replica sends a message that was missed once.',
    "In a time zone whose clocks change, the firings of these two days of the year may differ from "
    "those of beat: a time that does not exist fires right after the gap, and a time that occurs "
    "twice fires once.",
    "Beat itself adds celery.backend_cleanup at 04:00 for result backends without expiry. It is "
    "not among these jobs.",
)

OBSERVED_HEADER = (
    *observed.HEADER,
    "The comment of each job is a header for the options of its entry. A worker that calls "
    "cronledger.contrib.celery.observe reports the runs of tasks whose message has this header.",
)
JOB_HEADER = "cronledger_job"
"""The header of a message that names the observed job."""

# Read by `entries_of_tables`, in one statement and by name, because the database is not a ledger.
TABLES = """
SELECT p.name, p.task, p.args, p.kwargs, p.queue, p.exchange, p.routing_key, p.headers, p.priority,
       p.expires, p.expire_seconds, p.one_off, p.start_time, p.enabled,
       c.minute, c.hour, c.day_of_month, c.month_of_year, c.day_of_week, c.timezone,
       i.every, i.period, p.solar_id, p.clocked_id
FROM django_celery_beat_periodictask p
LEFT JOIN django_celery_beat_crontabschedule c ON c.id = p.crontab_id
LEFT JOIN django_celery_beat_intervalschedule i ON i.id = p.interval_id
ORDER BY p.name"""
_MOST_EXPIRY = 10 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class BeatEntry:
    """An entry of beat. `values`: its keys as in `beat_schedule`, as the user wrote them.

    `timezone`: that of its schedule. `left_out`: why it has no equivalent.
    """

    name: str
    values: Mapping[str, Any]
    timezone: str
    start: datetime | None = None
    end: datetime | None = None
    left_out: str | None = None


def entries_of(app: "Celery") -> list[BeatEntry]:
    """Return the entries of an app. Raises NoEquivalentError if they cannot be read."""
    app.loader.import_default_modules()  # as beat does: tasks may add entries
    app.finalize()
    schedule = app.conf.beat_schedule
    if not isinstance(schedule, Mapping):
        raise NoEquivalentError(f"beat_schedule is a {type(schedule).__name__}, not a mapping")
    zone = "UTC" if app.timezone is UTC else values.zone_name(app.timezone)
    return [
        BeatEntry(str(name), one if isinstance(one, Mapping) else {"entry": one}, zone)
        for name, one in schedule.items()
    ]


def entries_of_tables(url: str) -> list[BeatEntry]:
    """Return the rows of django_celery_beat in this PostgreSQL database.

    Raises psycopg.Error.
    """
    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.read_only = True
        return [entry_of_row(row) for row in connection.execute(TABLES)]


def entry_of_row(row: Mapping[str, Any]) -> BeatEntry:
    """Return the entry of a row of `TABLES`. A row without an equivalent says why."""
    zone = str(row["timezone"] or "UTC")
    left_out = (
        "the task is disabled" if not row["enabled"]
        else "the task runs once; enqueue it with due_at" if row["one_off"] or row["clocked_id"]
        else "a job cannot follow the sun" if row["solar_id"]
        else None
    )  # fmt: skip
    options = {
        name: row[name] for name in ("queue", "exchange", "routing_key", "priority")
        if row[name] not in (None, "")
    }  # fmt: skip
    if row["expire_seconds"] is not None:
        options["expires"] = row["expire_seconds"]
    found: dict[str, Any] = {"task": row["task"], "options": options}
    try:
        found["args"] = json.loads(row["args"] or "[]")
        found["kwargs"] = json.loads(row["kwargs"] or "{}")
        if headers := json.loads(row["headers"] or "{}"):
            options["headers"] = headers
        if left_out is None:
            found["schedule"] = _schedule_of_row(row)
    except Exception as error:  # noqa: BLE001 - crontab() raises exceptions of its own
        left_out = left_out or f"the row is invalid: {type(error).__name__}: {error}"
    return BeatEntry(str(row["name"]), found, zone, row["start_time"], row["expires"], left_out)


def _schedule_of_row(row: Mapping[str, Any]) -> Any:
    if row["every"] is not None:
        return timedelta(**{row["period"]: row["every"]})
    if row["minute"] is None:
        raise ValueError("it has no schedule")
    from celery.schedules import crontab  # noqa: PLC0415 - of an optional extra

    return crontab(
        minute=row["minute"], hour=row["hour"], day_of_week=row["day_of_week"],
        day_of_month=row["day_of_month"], month_of_year=row["month_of_year"],
    )  # fmt: skip


def convert(
    app: str, source: str, entries: Sequence[BeatEntry], *, observe: bool = False
) -> Import:
    """Return the jobs of the entries. `app`: the reference of the Celery app that sends.

    `observe`: beat sends the messages, and the workers report the runs.
    """
    taken: set[str] = set()
    found = tuple(_entry(app, one, taken, observe) for one in entries)
    header = OBSERVED_HEADER if observe else HEADER
    return Import("celery", (Source(source, found),), header)


def _entry(app: str, one: BeatEntry, taken: set[str], observe: bool) -> Entry:
    text = "\n".join(f"{key} = {values.text_of(value)}" for key, value in one.values.items())
    notes: list[Note] = []
    name = unique(slug_of(one.name) or "job", taken)
    jobs: dict[str, Table] = {}
    try:
        if one.left_out is not None:
            raise NoEquivalentError(one.left_out)
        jobs[name] = _observed(one, notes) if observe else _table(app, one, notes)
        taken.add(name)
    except NoEquivalentError as error:
        notes.append(Note(str(error), "dropped"))
    wrapper = f'"headers": {{"{JOB_HEADER}": "{name}"}}' if observe else ""
    return Entry(one.name, text, jobs, tuple(notes), wrapper)


def _observed(one: BeatEntry, notes: list[Note]) -> Table:
    found: list[Note] = []
    timing = _timing(one, found)
    if not timing["schedule"].startswith("@every"):
        notes += found
    return {**timing, **values.bounds(one.start, one.end), "grace": observed.QUEUED}


def _table(app: str, one: BeatEntry, notes: list[Note]) -> Table:
    task, args, kwargs = (one.values.get(key) for key in ("task", "args", "kwargs"))
    if not isinstance(task, str) or not task:
        raise NoEquivalentError(f"task is {values.text_of(task)}, not the name of a task")
    if not isinstance(args or (), list | tuple):
        raise NoEquivalentError(f"args is {values.text_of(args)}, not a list or tuple")
    if not _is_table(kwargs or {}):
        raise NoEquivalentError(f"kwargs is {values.text_of(kwargs)}, not a mapping of names")
    timing = _timing(one, notes)
    message = {
        "app": app, "task": task, "args": list(args or ()), "kwargs": dict(kwargs or {}),
        "options": _options(one.values.get("options"), notes),
    }  # fmt: skip
    given = {key: value for key, value in message.items() if value}
    payload = values.toml(given, "the message")
    if secrets.has_password(json.dumps(given)):
        notes.append(Note(f"the message contains a URL with a password, {secrets.STORED}"))
    return {
        **timing, **values.bounds(one.start, one.end),
        "python": HANDLER, "payload": payload, "catch_up": "latest",
    }  # fmt: skip


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _timing(one: BeatEntry, notes: list[Note]) -> dict[str, Any]:
    """Return the keys `schedule`, `timezone` and `day_or`. Raises NoEquivalentError."""
    from celery import schedules  # noqa: PLC0415 - of an optional extra

    schedule = one.values.get("schedule")
    if isinstance(schedule, schedules.schedule) and type(schedule) is schedules.schedule:
        relative, schedule = schedule.relative, schedule.run_every
    else:
        relative = bool(one.values.get("relative"))
    if isinstance(schedule, bool) or schedule is None:
        raise NoEquivalentError(f"schedule is {values.text_of(schedule)}")
    if isinstance(schedule, int | float | timedelta):
        return _interval(schedule, relative, one.timezone, notes)
    if isinstance(schedule, schedules.solar):
        raise NoEquivalentError(
            "a job cannot follow the sun; let it run each day, and wait or enqueue in the handler"
        )
    if not isinstance(schedule, schedules.crontab):
        raise NoEquivalentError(
            f"schedule is {values.text_of(schedule)}; only crontab and intervals have an equivalent"
        )
    return _crontab(schedule, one.timezone, notes)


def _interval(
    period: float | timedelta, relative: bool, zone: str, notes: list[Note]
) -> dict[str, Any]:
    try:
        seconds = period.total_seconds() if isinstance(period, timedelta) else float(period)
        text = values.every(seconds)
    except (OverflowError, ValueError) as error:
        raise NoEquivalentError(str(error)) from None
    values.parsed(text, "UTC")
    if relative:
        unit = next(unit for unit in (86_400, 3_600, 60, 1) if seconds >= unit)
        if seconds % unit:
            notes.append(
                Note("relative=True rounds each time down to its unit, so the period is shorter")
            )
        seconds -= seconds % unit
        if seconds == 86_400:
            return {"schedule": "@daily", "timezone": zone}
        if seconds == unit:
            return {"schedule": values.every(seconds)}
        text = values.every(seconds)
    notes.append(
        Note("beat counts the period from its last run; @every fires on a fixed grid since 1970")
    )
    return {"schedule": text}


def _crontab(schedule: Any, app_zone: str, notes: list[Note]) -> dict[str, Any]:
    own = vars(schedule).get("tz")  # of a crontab of django_celery_beat
    zone = app_zone if own is None else values.zone_name(own)
    parts: list[str] = []
    for name, low, high in (
        ("minute", 0, 59), ("hour", 0, 23), ("day_of_month", 1, 31), ("month_of_year", 1, 12),
        ("day_of_week", 0, 6),
    ):  # fmt: skip
        found, written = getattr(schedule, name), getattr(schedule, f"_orig_{name}")
        starred = isinstance(written, str) and written.startswith("*")
        try:
            parts.append(values.field(map(int, found), low, high, starred=starred))
        except (TypeError, ValueError) as error:
            raise NoEquivalentError(f"{name} {values.text_of(found)}: {error}") from None
    minute, hour, day, _, weekday = parts
    text = " ".join(parts)
    day_or = day == "*" or weekday == "*"
    values.parsed(text, zone, day_or=day_or)
    if minute == "*" and parts[1:] != ["*"] * 4:
        meant = " ".join(["0", "0" if hour == "*" else hour, *parts[2:]])
        where = f"hour {hour}" if hour != "*" else "these days"
        notes.append(
            Note(f"minute is left out, so it fires in each minute of {where}; perhaps {meant!r} "
                 "was meant")
        )  # fmt: skip
    return {"schedule": text, "timezone": zone, "day_or": None if day_or else False}


def _options(options: Any, notes: list[Note]) -> dict[str, Any]:
    """Return the options of a message that JSON can write. The others get a note."""
    if not options:
        return {}
    if not _is_table(options):
        raise NoEquivalentError(f"options is {values.text_of(options)}, not a mapping of names")
    kept: dict[str, Any] = {}
    for name, value in options.items():
        plain = value.total_seconds() if isinstance(value, timedelta) else value
        try:
            values.toml(plain, f"the option {name}")
        except NoEquivalentError as error:
            notes.append(Note(f"{error}; the option is omitted", "changed"))
        else:
            kept[name] = plain
    expires = kept.get("expires")
    if isinstance(expires, int | float) and not 0 < expires <= _MOST_EXPIRY:
        notes.append(Note(f"expires {expires} is not a time to live; it is omitted", "changed"))
        del kept["expires"]
    return kept
