"""A backlog through one replica with 10, 100 and 1000 slots, beside its floor and its peers."""

from collections.abc import Iterator
from functools import partial

from tests.bench import peer_processes
from tests.bench.backlog import drain_backlog, drain_enqueued
from tests.bench.baseline import COMMIT
from tests.bench.bench import Bench
from tests.bench.floor import measure_floor
from tests.bench.forms import SLOTS
from tests.bench.sample import Contestant, Samples, compete

OURS, ENQUEUED, FLOOR, BASELINE = "cronledger", "cronledger, enqueued", "floor", COMMIT


def measure(bench: Bench) -> dict[str, Samples]:
    return {str(slots): compete(_contestants(bench, slots), bench.form.repeats) for slots in SLOTS}


def _contestants(bench: Bench, slots: int) -> Iterator[Contestant]:
    server, backlog = bench.server, bench.form.backlog(slots)
    options = ("--profile", f"{bench.profile}.{slots}") if bench.profile else ()
    yield FLOOR, lambda: measure_floor(server, backlog.rows).sample
    yield OURS, lambda: drain_backlog(server, backlog, slots, options=options)
    yield ENQUEUED, lambda: drain_enqueued(server, backlog.rows, slots)
    if bench.baseline is not None:
        yield BASELINE, partial(drain_backlog, server, backlog, slots, product=bench.baseline)
    if bench.peers is not None:
        for peer in peer_processes.PEERS:
            yield (
                peer.name,
                partial(peer_processes.work, server, bench.peers, peer, slots, backlog.rows),
            )
