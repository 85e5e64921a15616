"""An import whose jobs stay in their scheduler, which reports their runs: `--observe`.

An importer returns the schedule of each job with `grace`, which is how late the scheduler may start
a run, and the `wrapper` of each entry. `observed` makes observed jobs of them.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from cronledger.rules import cron, durations
from cronledger.sources.imported import Entry, Import, Note, Table

PROGRAM = "/opt/cronledger/bin/cronledger"
"""The full path of the program, because the schedulers of hosts have a short PATH."""
GRACE = "1m"
QUEUED = "5m"
"""How late a run may start if it has to wait for a worker or a pod."""
LONGEST_RUN = "24h"
HEADER = (
    "observed = true: the other scheduler still starts the runs, and reports them. The comment of "
    "each job shows what to change in that scheduler. The reports need CRONLEDGER_DATABASE_URL. "
    "See docs/howto/observe.md.",
    "grace: a run that starts later belongs to no plan_time. grace is shorter than the time "
    "between two plan_times.",
    f'run_timeout = "{LONGEST_RUN}", unless the scheduler has a limit: a run whose end is not '
    "reported by then is FAILED.",
)

_KEPT = ("description", "labels", "timezone", "scope_kind", "scopes")
_OF_SCHEDULE = ("schedule", "day_or", "dst_gap", "dst_fold", "starts_at", "ends_at")
_UNKNOWN = re.compile(r"@every|.*\bH\b", re.DOTALL)
"""Schedules whose plan_times differ from those of the other scheduler, because it counts from the
last run or chooses random times."""


def observed(imported: Import) -> Import:
    """Return the import with observed jobs."""
    sources = (
        replace(source, entries=tuple(_observed(entry) for entry in source.entries))
        for source in imported.sources
    )
    return replace(imported, kind=f"{imported.kind} --observe", sources=tuple(sources), channels={})


def _observed(entry: Entry) -> Entry:
    tables = list(entry.jobs.items())
    if not tables:
        return replace(entry, wrapper="")
    name, table = tables[0]
    notes = list(entry.notes)
    unknown = list(_why_unknown([table for _, table in tables]))
    notes += [
        Note(f"{why}, so the job has no schedule: its runs are recorded, but a missing run is not "
             "noticed", "changed")
        for why in unknown
    ]  # fmt: skip
    timing = {} if unknown else _timing(table)
    kept = {key: table.get(key) for key in _KEPT}
    timeout = table.get("run_timeout") or LONGEST_RUN
    job = {**kept, **timing, "observed": True, "run_timeout": timeout}
    return replace(entry, jobs={name: job}, notes=tuple(notes))


def _why_unknown(tables: list[Table]) -> Iterator[str]:
    if len(tables) > 1:
        yield f"a report does not state which of these {len(tables)} schedules it belongs to"
    elif _UNKNOWN.match(tables[0].get("schedule") or ""):
        yield "the scheduler counts from the last run, or chooses random times"


def _timing(table: Table) -> Table:
    """Return the keys of the schedule, with a grace that is shorter than its period."""
    if table.get("schedule") is None:
        return {}
    period = cron.parse(table["schedule"], day_or=table.get("day_or") is None).shortest_period
    late = durations.parse(table.get("grace") or GRACE)
    grace = durations.format(late if late < period else period / 2)
    return {**{key: table.get(key) for key in _OF_SCHEDULE}, "grace": grace}
