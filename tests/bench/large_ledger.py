"""The speed of claims in a ledger of 50,000,000 rows, beside that in an empty ledger.

`large_dataset` describes the large one. Both execute the same backlogs in turns.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from tests.bench.backlog import Backlog, drain_messages, drain_once, replicas_of
from tests.bench.bench import Bench
from tests.bench.large_dataset import KINDS, fill
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.sample import Sample, Samples, compete

SLOTS = 1_000

EMPTY, LARGE = "empty", "large"


class Side(NamedTuple):
    """A ledger, and the pids of its replicas."""

    ledger: Ledger
    pids: Sequence[int]


def measure(bench: Bench) -> dict[str, Any]:
    """Return the samples of both ledgers, for missed plan_times and for messages, and the size."""
    form = bench.form
    assert form.rows is not None
    assert form.schedules is not None
    with ExitStack() as stack:
        large = stack.enter_context(new_ledger(bench.server, verify=False))
        began = time.monotonic()
        fill(large, form.rows, form.schedules // sum(KINDS.values()))
        seconds = time.monotonic() - began
        size = large.one("SELECT pg_database_size(current_database()) AS bytes")["bytes"]
        empty = stack.enter_context(new_ledger(bench.server))
        backlogs, messages = _samples(empty, large, form.backlog(SLOTS), form.repeats)
        return {
            "rows": form.rows, "seconds_to_fill": round(seconds), "bytes": size,
            "backlog": backlogs, "enqueued": messages,
        }  # fmt: skip


def _samples(
    empty: Ledger, large: Ledger, backlog: Backlog, repeats: int
) -> tuple[Samples, Samples]:
    """Drain backlogs and messages in both ledgers in turns, and verify their jobs."""
    with replicas_of(empty, SLOTS) as beside, replicas_of(large, SLOTS) as pids:
        sides = {EMPTY: Side(empty, beside), LARGE: Side(large, pids)}
        names = (f"measured-{n}" for n in count())
        backlogs = compete(
            [(name, partial(_backlog, side, names, backlog)) for name, side in sides.items()],
            repeats,
        )
        messages = compete(
            [(name, partial(_messages, side, names, backlog.rows)) for name, side in sides.items()],
            repeats,
        )
    measured = large.connection.execute(
        "SELECT name FROM cronledger.jobs WHERE name LIKE 'measured-%'"
    ).fetchall()
    large.product.verify(large.dsn, [job["name"] for job in measured])
    return backlogs, messages


def _backlog(side: Side, names: Iterator[str], backlog: Backlog) -> Sample:
    return drain_once(side.ledger, side.pids, next(names), backlog)


def _messages(side: Side, names: Iterator[str], rows: int) -> Sample:
    return drain_messages(side.ledger, side.pids, next(names), rows)
