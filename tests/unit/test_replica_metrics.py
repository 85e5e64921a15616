"""F68 the metrics of a replica: their series, and the text that Prometheus reads."""

import math
import re
import sys
from importlib import metadata
from typing import get_args

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from cronledger.engine.maintenance.check_in import State
from cronledger.ledger.migrate import migrations
from cronledger.metrics.measurements import (
    CLAIMS,
    DURATIONS,
    LATENESSES,
    STATES,
    Histogram,
    Measurements,
    Observation,
)
from cronledger.metrics.replica_metrics import Exposition, ReplicaCollector
from cronledger.process.metrics import require_usable
from cronledger.replica import Replica
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import Settings
from tests.promtool import complaints, needs_promtool

URL = "postgresql:///unused"
PLAIN = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


class World:
    """A replica that only counts, and what its collector yields."""

    def __init__(self, *queues: str) -> None:
        self.counts = Measurements(queues)
        self.seen = Observation(
            self.counts, "running", True, slots=4, running=3, unwritten=2, leases_lost=1,
            loop_errors={"dispatcher": 5, "finisher": 0}, loop_ages={"dispatcher": 0.5},
            clock_skew=-0.25,
        )  # fmt: skip
        self.exposition = Exposition(lambda: self.seen)

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return each value of the metrics by name and labels."""
        registry = CollectorRegistry()
        registry.register(ReplicaCollector(lambda: self.seen))
        return {
            (sample.name.removeprefix("cronledger_replica_"), tuple(sorted(sample.labels.items()))):
            sample.value
            for family in read_text(generate_latest(registry).decode())
            for sample in family.samples
        }  # fmt: skip

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[name, tuple(sorted(labels.items()))]


def test_every_series_exists_before_the_first_event() -> None:
    world = World("default", "heavy")
    samples = world.samples()
    for queue in ("default", "heavy"):
        for handler in ("python", "command", "sql", "http"):
            for outcome in ("success", "failed", "cancelled", "released", "lost"):
                labels = (("handler", handler), ("outcome", outcome), ("queue", queue))
                assert samples["executions_total", labels] == 0
            kind = (("handler", handler), ("queue", queue))
            assert samples["execution_duration_seconds_count", kind] == 0
        assert samples["start_lateness_seconds_count", (("queue", queue),)] == 0
    assert samples["claim_duration_seconds_count", ()] == 0
    # No label names a job, a scope or a runner.
    assert {name for _, found in samples for name, _ in found} == {
        "queue", "handler", "outcome", "loop", "state", "le", "version", "python", "schema_version",
    }  # fmt: skip
    # A kind of handler that no replica runs gets its series when it ends.
    world.counts.ended("default", "external", "failed", 0)
    external = {"queue": "default", "handler": "external"}
    assert world.value("executions_total", outcome="failed", **external) == 1
    assert world.value("executions_total", outcome="success", **external) == 0


def test_every_metric_of_a_replica_has_the_name_of_its_ledger() -> None:
    world = World("default")
    text = Exposition(lambda: world.seen, "shop").render("")[0].decode()
    samples = [x for family in read_text(text) for x in family.samples]
    labels = [x.labels.get("ledger") for x in samples if x.name.startswith("cronledger_")]
    assert len(labels) == len(world.samples()) and set(labels) == {"shop"}


def test_an_attempt_is_counted_once_with_its_duration() -> None:
    world = World("default")
    world.counts.ended("default", "python", "failed", 0.3)
    world.counts.ended("default", "python", "failed", 90_000)
    kind = {"queue": "default", "handler": "python"}
    assert world.value("executions_total", outcome="failed", **kind) == 2
    assert world.value("execution_duration_seconds_count", **kind) == 2
    assert world.value("execution_duration_seconds_sum", **kind) == pytest.approx(90_000.3)
    counted = {key: value for key, value in world.samples().items() if value}
    buckets = {
        float(dict(labels)["le"]): value
        for (name, labels), value in counted.items()
        if name == "execution_duration_seconds_bucket"
    }
    assert buckets == {x: 1 for x in DURATIONS if x >= 0.3} | {math.inf: 2}


def test_a_bucket_contains_its_bound_and_bounds_ascend() -> None:
    for bounds in (DURATIONS, LATENESSES, CLAIMS):
        assert list(bounds) == sorted(set(bounds))
    histogram = Histogram((1, 2))
    for seconds in (0, 1, 1.5, 2, 3):
        histogram.observe(seconds)
    assert histogram.counts == [2, 2, 1]
    assert histogram.sum == 7.5


def test_the_state_of_the_replica() -> None:
    world = World("default")
    gauges = {
        "slots": 4, "running": 3, "unwritten_outcomes": 2, "leases_lost_total": 1,
        "clock_skew_seconds": -0.25, "database_reachable": 1,
    }  # fmt: skip
    assert {name: world.value(name) for name in gauges} == gauges
    assert world.value("loop_errors_total", loop="dispatcher") == 5
    assert world.value("loop_age_seconds", loop="dispatcher") == 0.5
    assert get_args(State) == STATES
    states = {state: world.value("state", state=state) for state in STATES}
    assert states == {"starting": 0, "running": 1, "draining": 0, "stopped": 0}
    python = ".".join(map(str, sys.version_info[:3]))
    newest = max(x.name for x in migrations() if x.phase != "repeated")[:4]
    version = metadata.version("cronledger")
    assert world.value("build_info", python=python, schema_version=newest, version=version) == 1
    # A clock that is not known has no skew.
    world.seen = Observation(world.counts, "starting", False, slots=4)
    assert not [name for name, _ in world.samples() if name.startswith("clock_skew")]
    assert world.value("database_reachable") == 0


@needs_promtool
def test_promtool_accepts_the_text() -> None:
    queues = ('odd "name"\\', "new\nline", "ü")
    world = World(*queues)
    for seconds in (0, 1e-9, 0.1, 1e9):
        world.counts.ended(queues[0], "http", "success", seconds)
        world.counts.lateness[queues[0]].observe(seconds)
        world.counts.claims.observe(seconds)
    text, _ = world.exposition.render(PLAIN)
    assert complaints(text) == ""


def test_the_scraper_chooses_the_format() -> None:
    world = World("default")
    text, content_type = world.exposition.render(PLAIN)
    assert content_type.startswith("text/plain; version=0.0.4")
    names = {family.name for family in read_text(text.decode())}
    assert {"cronledger_replica_executions", "process_open_fds"} <= names
    text, content_type = world.exposition.render(f"{OPENMETRICS},{PLAIN};q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    read = openmetrics.text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]
    assert names == {family.name for family in read}
    assert world.exposition.render("*/*")[1].startswith("text/plain; version=0.0.4")


def test_two_replicas_of_a_program_are_independent() -> None:
    collectors = [Replica(url=URL, settings=Settings()).collector() for _ in range(2)]
    for collector in collectors:
        registry = CollectorRegistry(auto_describe=True)
        registry.register(collector)
        states = {s.labels["state"]: s.value for f in registry.collect()
                  if f.name == "cronledger_replica_state" for s in f.samples}  # fmt: skip
        assert states["starting"] == 1
    assert collectors[0].read().measurements is not collectors[1].read().measurements
    named = [family.name for family in REGISTRY.collect()]
    assert not [name for name in named if name.startswith("cronledger")]


def test_metrics_need_the_extra_and_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    remedy = re.escape("pip install 'cronledger[metrics]'")
    with pytest.raises(ConfigurationError, match=remedy):
        Replica(url=URL, settings=Settings()).collector()
    with pytest.raises(ConfigurationError, match=f"CRONLEDGER_METRICS.*{remedy}"):
        require_usable(Settings(metrics=True, health_port=0))
    require_usable(Settings(health_port=0))
    monkeypatch.undo()
    with pytest.raises(ConfigurationError, match="CRONLEDGER_HEALTH_PORT"):
        require_usable(Settings(metrics=True))
    require_usable(Settings(metrics=True, health_port=0))
