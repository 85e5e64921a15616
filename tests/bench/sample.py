"""What one run of a contestant measures, and the middle of several runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from tests.bench.usage import Usage

Json = Mapping[str, float]
"""A sample as a dictionary, which is how reports contain it."""


class Sample(NamedTuple):
    """Executions (or rows) per second. For each of them: microseconds of CPU time, bytes of WAL."""

    per_second: float
    client_us: float
    server_us: float
    wal_bytes: float

    @classmethod
    def of(cls, rows: int, seconds: float, usage: Usage) -> "Sample":
        return cls(
            rows / seconds, 1e6 * usage.client / rows, 1e6 * usage.server / rows, usage.wal / rows
        )

    def json(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in self._asdict().items()}


Contestant = tuple[str, Callable[[], Sample]]
Samples = dict[str, list[dict[str, float]]]
"""The samples of each contestant, in the order of the repetitions."""


def compete(contestants: Iterable[Contestant], repeats: int) -> Samples:
    """Run the contestants of each repetition one after the other, so that they have one load."""
    field = list(contestants)
    samples: Samples = {name: [] for name, _ in field}
    for _ in range(repeats):
        for name, run in field:
            samples[name].append(run().json())
    return samples


def speed(sample: Json) -> float:
    return sample["per_second"]


def cpu(sample: Json) -> float:
    """Return the CPU time of client and server, in microseconds per execution."""
    return sample["client_us"] + sample["server_us"]


def wal(sample: Json) -> float:
    """Return the bytes of WAL per execution."""
    return sample["wal_bytes"]


def middle(samples: Sequence[Json], value: Callable[[Json], float]) -> float:
    return median(map(value, samples))


def ratio(samples: Sequence[Json], others: Sequence[Json], value: Callable[[Json], float]) -> float:
    """Return the median of the ratios of a value, pair by pair.

    The n-th samples of both were measured one after the other, under the same load.
    """
    return median(value(a) / value(b) for a, b in zip(samples, others, strict=True))
