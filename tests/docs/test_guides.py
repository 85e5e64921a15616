"""The commands of the guides, each guide on a ledger of its own."""

from pathlib import Path

import psycopg
import pytest

from cronledger.embedded.server import find_binaries
from tests.database import chosen_binaries
from tests.docs.support.pages import ROOT, Shell, blocks

pytestmark = pytest.mark.slow

# tests/db/test_three_roles.py follows roles.md, which makes roles, on a server of its own.
GUIDES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [*(ROOT / "docs" / "howto").glob("*.md"), ROOT / "docs" / "policies.md"]
    if page.name != "roles.md"
    and any(block.language in ("console", "sql") for block in blocks(page))
)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_reader_can_follow(guide: str, database_url: str, tmp_path: Path) -> None:
    variables = {"CRONLEDGER_DATABASE_URL": database_url, "UVICORN_PORT": "0"}
    programs = find_binaries(chosen_binaries()).directory
    with Shell(tmp_path, variables, programs) as shell:
        for block in blocks(ROOT / guide):
            if block.language == "sql":
                with psycopg.connect(database_url) as c:
                    c.execute(block.text.encode())
            else:
                shell.read(block)
