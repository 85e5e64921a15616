"""docs/metrics.md lists the metrics of a replica as they are."""

import re

import pytest
from prometheus_client import REGISTRY, generate_latest

from cronledger.metrics.measurements import HANDLERS, OUTCOMES, STATES, Observation
from cronledger.metrics.replica_metrics import ReplicaCollector
from cronledger.replica import Replica
from cronledger.settings import Settings
from tests.docs.support.pages import ROOT, blocks

FILE = ROOT / "docs" / "metrics.md"
PAGE = FILE.read_text("utf-8")
SECTION = PAGE[PAGE.index("## Replica metrics") : PAGE.index("## Ledger metrics")]
ROW = re.compile(r"^\| `(cronledger_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def _metrics() -> dict[str, tuple[str, set[str]]]:
    counts = Replica(url="postgresql:///unused", settings=Settings()).collector().read()
    seen = Observation(
        counts.measurements, "running", True, slots=1, loop_errors={"a": 1}, loop_ages={"a": 1.0},
        clock_skew=0.0,
    )  # fmt: skip
    found = {}
    for family in ReplicaCollector(lambda: seen).collect():
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = (family.type, labels)
    return found


def test_the_page_lists_every_metric_with_its_type_and_labels() -> None:
    listed = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(SECTION)
    }
    assert listed == _metrics()


def test_the_page_describes_every_value_of_a_label() -> None:
    words = set(re.findall(r"`(\w+)`", SECTION))
    assert words >= {*HANDLERS, *OUTCOMES, *STATES}


def test_the_program_of_the_page_registers_its_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", "postgresql:///unused")
    (program,) = [
        block.text for block in blocks(FILE) if block.language == "python" and block.text in SECTION
    ]
    before = set(REGISTRY._collector_to_names)
    try:
        exec(program, {})
        assert b'cronledger_replica_state{state="starting"} 1.0' in generate_latest(REGISTRY)
    finally:
        for collector in set(REGISTRY._collector_to_names) - before:
            REGISTRY.unregister(collector)
