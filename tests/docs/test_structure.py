"""`make structure` finds a cycle, and the architecture lists what it shows."""

import re

import grimp
import pytest

from docs.tools.structure import ROOT, levels

pytestmark = pytest.mark.tools


def test_a_cycle_is_an_error() -> None:
    graph = grimp.build_graph("cronledger")
    graph.add_import(importer="cronledger.rules.model", imported="cronledger.cli")
    with pytest.raises(ValueError, match=r"cronledger\.rules"):
        levels(graph)


def test_the_architecture_lists_every_part() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    listed = set(re.findall(r"`(\w+)(?:/|\.py)`", text[text.index("## Packages") :]))
    names = {part.rpartition(".")[2] for part in levels(grimp.build_graph("cronledger"))}
    assert names - {"cronledger"} <= listed
