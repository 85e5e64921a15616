"""The statements of the page: what they name, and what they promise."""

import re
from pathlib import Path

import pytest

from tests.db.support.rows import Db

SQL = Path(__file__).parents[2] / "src" / "cronledger" / "web" / "sql"
STATEMENTS = sorted(path.stem for path in SQL.glob("*.sql"))


def body(name: str) -> str:
    text = (SQL / f"{name}.sql").read_text("utf-8")
    return re.sub(r"--.*", "", text)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_names_only_what_its_login_may_use(db: Db, name: str) -> None:
    role = "operator" if name.startswith(("call_", "show_payload", "show_target")) else "viewer"
    named = set(re.findall(r"\{schema\}\.(\w+)", body(name)))
    granted = db.execute(
        "SELECT object FROM cronledger.decided_grants() WHERE role IN ('PUBLIC', %s)",
        [f"cronledger_{role}"],
    )
    assert named <= {row["object"] for row in granted}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_bounded_and_explained(name: str) -> None:
    text = (SQL / f"{name}.sql").read_text("utf-8")
    assert text.startswith("-- ") and re.search(r"No lock\.|Locks: those of the function", text)
    if name.startswith("list_"):
        assert "LIMIT" in body(name)
