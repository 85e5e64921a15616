"""One backlog through 1, 2, 4, 8 and 16 replicas."""

from functools import partial

from tests.bench.backlog import drain_backlog
from tests.bench.bench import Bench
from tests.bench.sample import Samples, compete

SLOTS = 100


def measure(bench: Bench) -> Samples:
    """Return the samples by the number of replicas, each with 100 slots."""
    return compete(
        (
            (
                str(replicas),
                partial(drain_backlog, bench.server, bench.form.shared, SLOTS, replicas=replicas),
            )
            for replicas in bench.form.replicas
        ),
        bench.form.repeats,
    )
