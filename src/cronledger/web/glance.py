"""A ledger at a glance: five counters, and one row for each job that needs attention."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any

from cronledger.web import attention
from cronledger.web.attention import Kind, Trouble
from cronledger.web.reading import Reader, Reading

MOST = 100
"""Jobs that one statement returns, and rows of a list."""
VIOLATIONS_SECONDS = 60.0
"""A violation of the present has lasted for minutes when it is found."""
MOST_SCOPES = 10_000
"""Scopes of which the last execution is looked at, which costs a read of an index for each."""
FAILING_SECONDS = 5.0
MOST_BREACHES = 1_000
"""The newest breaches of all jobs, which are searched for open ones of the last day."""
SELECTABLE = (Kind.FAILING, Kind.OVERDUE, Kind.ALERT)
"""The counters that select rows of the list."""
UNFILTERED: Mapping[str, Any] = {"owner": None, "label": None}

TROUBLE = ("overdue", "broken", "failing", "violations", "breaches", "alerts")
"""The readings that state what is wrong."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What a page over several ledgers shows of one.

    `counts`: see `counts`; none: the ledger was never read. `is_cut`: there is more trouble.
    `problems`: why parts are not up to date. `now`: the database's time when it was read last, and
    `read_at`: that time on the clock of `time.monotonic`.
    """

    counts: list[tuple[str, str, str]]
    troubles: list[Trouble]
    is_cut: bool
    problems: list[str]
    now: datetime | None
    read_at: float


async def glance(reader: Reader) -> Glance:
    """Return the ledger at a glance. If its database is away, this is what was read last."""
    head = await reader.read("read_head")
    read_at = monotonic() - head.age
    if head.rows is None:
        return Glance([], [], False, [head.problem or ""], None, read_at)
    found = await gathered(readings(reader, UNFILTERED))
    troubles = wrong(found)
    return Glance(
        counts(troubles, found), troubles, is_cut(found), problems_of(found.values()), head.now,
        read_at,
    )  # fmt: skip


def readings(reader: Reader, filters: Mapping[str, Any]) -> dict[str, Awaitable[Reading]]:
    """Return the readings by name. Each list has one row more than a page shows, if any."""
    most: dict[str, Any] = {"max_rows": MOST + 1, **filters}
    read = reader.read
    return {
        "overdue": read("list_overdue", **most),
        "broken": read("list_broken", **most),
        "failing": read("list_failing", fresh=FAILING_SECONDS, most_scopes=MOST_SCOPES, **most),
        "breaches": read("list_open_breaches", max_read=MOST_BREACHES, **most),
        "alerts": read("list_alerting", **most),
        "violations": read("list_violations", fresh=VIOLATIONS_SECONDS, **most),
        "paused": read("list_paused_jobs", **most),
        "running": read("list_running", **most),
    }


async def gathered(wanted: Mapping[str, Awaitable[Reading]]) -> dict[str, Reading]:
    """Return the readings once all are there."""
    return dict(zip(wanted, await asyncio.gather(*wanted.values()), strict=True))


def wrong(found: Mapping[str, Reading]) -> list[Trouble]:
    """Return what needs attention, the worst first."""
    return attention.folded(attention.problems(
        overdue=[row for row in found["overdue"].known if not row["is_held"]],
        **{name: found[name].known for name in TROUBLE if name != "overdue"},
    ))  # fmt: skip


def is_cut(found: Mapping[str, Reading]) -> bool:
    """Return whether a list of trouble has more rows than a page shows."""
    return any(found[name].has_more(MOST) for name in TROUBLE)


_READINGS = {"alert": "alerts"}


def counts(troubles: Sequence[Trouble], found: Mapping[str, Reading]) -> list[tuple[str, str, str]]:
    """Return the counters: the word, the number, and what its link selects or leads to.

    What was never read has no number.
    """
    numbers = [
        (kind.value, len(attention.of_kind(troubles, kind)), kind.value) for kind in SELECTABLE
    ]
    numbers += [
        ("running", len(found["running"].known), "#running"),
        ("paused", len(found["paused"].known), "#held"),
    ]
    words = {"alert": "with alerts"}
    unread = {word for word, _, _ in numbers if found[_READINGS.get(word, word)].rows is None}
    return [
        (
            words.get(word, word),
            "–" if word in unread else f"{MOST}+" if number > MOST else f"{number:,}",
            target,
        )
        for word, number, target in numbers
    ]


def problems_of(found: Iterable[Reading]) -> list[str]:
    """Return why readings are not up to date, each reason once."""
    return list(dict.fromkeys(one.problem for one in found if one.problem is not None))
