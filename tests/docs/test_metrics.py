"""docs/metrics.md lists the metrics of a replica as they are."""

import re

from cronledger.metrics.measurements import HANDLERS, OUTCOMES, STATES, Observation
from cronledger.metrics.replica_metrics import ReplicaCollector
from cronledger.replica import Replica
from cronledger.settings import Settings
from tests.docs.support.pages import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")
SECTION = PAGE[PAGE.index("## Replica metrics") : PAGE.index("## Ledger metrics")]
ROW = re.compile(r"^\| `(cronledger_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def _metrics() -> dict[str, tuple[str, set[str]]]:
    """Return type and labels of each metric by name."""
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


def test_f68_the_page_lists_every_metric_with_its_type_and_labels() -> None:
    listed = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(SECTION)
    }
    assert listed == _metrics()


def test_f68_the_page_describes_every_value_of_a_label() -> None:
    words = set(re.findall(r"`(\w+)`", SECTION))
    assert words >= {*HANDLERS, *OUTCOMES, *STATES}
