"""`make structure` shows the packages on levels, and finds a cycle."""

import re

import grimp
import pytest

from docs.tools.structure import ROOT, levels, sizes

pytestmark = pytest.mark.tools


def test_each_package_stands_above_what_it_imports() -> None:
    found = levels(grimp.build_graph("cronledger"))
    assert found["cronledger.rules"] == 0
    assert found["cronledger.engine.runtime"] > found["cronledger.engine.claiming"]
    assert found["cronledger.engine.claiming"] > found["cronledger.ledger"]
    assert found["cronledger.contrib"] > found["cronledger.cli"] > found["cronledger.replica"]


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


def test_every_part_of_the_repository_has_lines() -> None:
    assert all(sizes().values())
