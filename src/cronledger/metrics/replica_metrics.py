"""The metrics of a replica for Prometheus. This module needs the extra `metrics`.

Nothing is registered in the global registry of prometheus-client, because a program may have two
replicas.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from itertools import accumulate, chain

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from cronledger.ledger.migrate import newest_migration
from cronledger.metrics.formats import format_for, labelled
from cronledger.metrics.measurements import STATES, Histogram, Measurements, Observation

PREFIX = "cronledger_replica_"
BUILD = ("version", "python", "schema_version")
QUEUE = ("queue",)
ATTEMPT = ("queue", "handler")
LOOP = ("loop",)


class ReplicaCollector(Collector):
    """Makes the metrics of one replica from the result of `read`. Any thread may collect them.

    Register it in one registry for each replica, because the metrics of two replicas have the same
    names and labels. `ledger`: the label of this name of all metrics, unless it is None.
    """

    def __init__(self, read: Callable[[], Observation], ledger: str | None = None) -> None:
        self.read = read
        self._ledger = ledger
        self._build = _gauge("build_info", "The versions of this replica; always 1.", BUILD)
        self._build.add_metric(
            [metadata.version("cronledger"), platform.python_version(), newest_migration()], 1
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the current metrics."""
        seen = self.read()
        parts = (_counted(seen.measurements), _present(seen), _loops(seen), _condition(seen))
        yield from labelled(chain(*parts, (self._build,)), self._ledger)


class Exposition:
    """The text of /metrics: the metrics of a replica and those of its process (`process_*`)."""

    def __init__(self, read: Callable[[], Observation], ledger: str | None = None) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(ReplicaCollector(read, ledger))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the text in the format that the header Accept prefers, and its content type.

        The call takes some milliseconds. Any thread may make it.
        """
        encode, content_type = format_for(accept)
        return encode(self._registry), content_type


def _gauge(name: str, text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _value(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name: str, text: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)


def _histogram(name: str, text: str, labels: Sequence[str] = ()) -> HistogramMetricFamily:
    return HistogramMetricFamily(PREFIX + name, text, labels=labels)


def _add(family: HistogramMetricFamily, labels: Sequence[str], values: Histogram) -> None:
    bounds = [*map(floatToGoString, values.bounds), "+Inf"]
    # `list` copies at once; another thread may count meanwhile.
    sums = accumulate(list(values.counts))
    family.add_metric(labels, list(zip(bounds, sums, strict=True)), values.sum)


def _counted(counts: Measurements) -> Iterator[Metric]:
    executions = _counter(
        "executions",
        "Attempts that ended. lost: this replica writes no outcome.",
        (*ATTEMPT, "outcome"),
    )
    durations = _histogram("execution_duration_seconds", "Duration of the handler.", ATTEMPT)
    for key, attempts in tuple(counts.attempts.items()):
        for outcome, number in attempts.outcomes.items():
            executions.add_metric([*key, outcome], number)
        _add(durations, key, attempts.durations)
    lateness = _histogram(
        "start_lateness_seconds",
        "Time from due_at to the first start of scheduled executions, by the database's clock.",
        QUEUE,
    )
    for queue, values in tuple(counts.lateness.items()):
        _add(lateness, [queue], values)
    claims = _histogram("claim_duration_seconds", "Duration of claims that were committed.")
    _add(claims, [], counts.claims)
    yield from (executions, durations, lateness, claims)


def _present(seen: Observation) -> Iterator[Metric]:
    yield _value(
        "slots", "Maximum number of executions that this replica runs at once.", seen.slots
    )
    yield _value("running", "Executions that run now.", seen.running)
    yield _value(
        "unwritten_outcomes", "Outcomes that the database has not accepted yet.", seen.unwritten
    )
    lost = _counter(
        "leases_lost",
        "Leases that the ledger gave to another runner, or ended, while this replica held them.",
    )
    lost.add_metric([], seen.leases_lost)
    yield lost


def _loops(seen: Observation) -> Iterator[Metric]:
    errors = _counter("loop_errors", "Steps of a loop that failed.", LOOP)
    for loop, number in seen.loop_errors.items():
        errors.add_metric([loop], number)
    ages = _gauge("loop_age_seconds", "Time since the last successful step of a loop ended.", LOOP)
    for loop, seconds in seen.loop_ages.items():
        ages.add_metric([loop], seconds)
    yield from (errors, ages)


def _condition(seen: Observation) -> Iterator[Metric]:
    if seen.clock_skew is not None:
        yield _value(
            "clock_skew_seconds",
            "Clock of this host minus the clock of the database.",
            seen.clock_skew,
        )
    states = _gauge("state", "1 for the current state of this replica, otherwise 0.", ("state",))
    for state in STATES:
        states.add_metric([state], seen.state == state)
    yield states
    yield _value(
        "database_reachable",
        "1 if the last steps that read the database's clock succeeded, otherwise 0.",
        seen.database_reachable,
    )
