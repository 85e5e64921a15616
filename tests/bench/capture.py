"""What the capture of output costs an execution whose handler prints nothing."""

from functools import partial

from tests.bench.backlog import drain_backlog
from tests.bench.bench import Bench
from tests.bench.sample import Samples, compete

SLOTS = 1000
REPEATS = 4
"""Times those of the form, because the difference is smaller than that of two equal runs."""


def measure(bench: Bench) -> Samples:
    """Return the samples with `capture_output` and without it, in turns."""
    backlog = bench.form.backlog(SLOTS)
    return compete(
        (
            (name, partial(drain_backlog, bench.server, backlog, SLOTS, capture_output=captured))
            for name, captured in (("captured", True), ("not captured", False))
        ),
        REPEATS * bench.form.repeats,
    )
