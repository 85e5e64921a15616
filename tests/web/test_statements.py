"""The statements of the page: what they name, and what they promise."""

import re
from collections import defaultdict
from pathlib import Path

from tests.db.support.rows import Db

SQL = Path(__file__).parents[2] / "src" / "cronledger" / "web" / "sql"
STATEMENTS = sorted(path.stem for path in SQL.glob("*.sql"))


def body(name: str) -> str:
    text = (SQL / f"{name}.sql").read_text("utf-8")
    return re.sub(r"--.*", "", text)


def test_a_statement_names_only_what_its_login_may_use(db: Db) -> None:
    granted: dict[str, set[str]] = defaultdict(set)
    for row in db.execute("SELECT role, object FROM cronledger.decided_grants()"):
        granted[row["role"]].add(row["object"])
    for name in STATEMENTS:
        role = "operator" if name.startswith(("call_", "show_payload", "show_target")) else "viewer"
        named = set(re.findall(r"\{schema\}\.(\w+)", body(name)))
        assert named <= granted["PUBLIC"] | granted[f"cronledger_{role}"], name


def test_a_statement_is_bounded_and_explained() -> None:
    assert STATEMENTS
    for name in STATEMENTS:
        text = (SQL / f"{name}.sql").read_text("utf-8")
        assert text.startswith("-- "), name
        assert re.search(r"No lock\.|Locks: those of the function", text), name
        assert not name.startswith("list_") or "LIMIT" in body(name), name
