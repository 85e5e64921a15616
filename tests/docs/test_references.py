"""Pages refer to what exists: files, headings, modules, commands, settings, tests."""

import re
from pathlib import Path

import grimp
import pytest

from docs.tools.structure import levels
from tests.docs.support.pages import ROOT
from tests.docs.support.references import anchors, dead_references, pages


@pytest.mark.long
def test_no_reference_of_a_page_is_dead() -> None:
    found = {page.relative_to(ROOT).as_posix(): dead_references(page) for page in pages()}
    assert {page: dead for page, dead in found.items() if dead} == {}


@pytest.mark.tools
def test_a_dead_reference_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n[a](missing.md) [b](#a-heading) [c](#none) `src/none.py` `jobs none`\n"
        "`cronledger jobs list --none` `cronledger.none` `make none` `CRONLEDGER_NONE`\n"
        "It logs `none`. `test_none` `python -m tests.none`\n"
        "`cronledger.audit.verify` `cronledger.trigger`\n",
        "utf-8",
    )
    assert anchors(page) == {"a-heading"}
    assert len(dead_references(page)) == 11


@pytest.mark.tools
def test_the_architecture_lists_every_part() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    listed = set(re.findall(r"`(\w+)(?:/|\.py)`", text[text.index("## Packages") :]))
    names = {part.rpartition(".")[2] for part in levels(grimp.build_graph("cronledger"))}
    assert names - {"cronledger"} <= listed
