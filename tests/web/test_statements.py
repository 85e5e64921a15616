"""The statements of the page: what they name, and what they promise."""

import re
from collections import defaultdict
from pathlib import Path

from tests.db.support.rows import Db

PAGE = Path(__file__).parents[2] / "src" / "cronledger" / "web"
OWN = {path.stem: path for path in (PAGE / "sql").glob("*.sql")}
LEDGER = {path.stem: path for path in (PAGE.parent / "ledger" / "sql").glob("*.sql")}
SHARED = {
    name for path in PAGE.rglob("*.py")
    for name in re.findall(r"\bread\(\s*\"(\w+)\"", path.read_text("utf-8"))
} - OWN.keys()  # fmt: skip
STATEMENTS = sorted(OWN.keys() | SHARED)


def head(name: str) -> str:
    return (OWN | LEDGER)[name].read_text("utf-8")


def body(name: str) -> str:
    return re.sub(r"--.*", "", head(name))


def test_a_name_means_one_statement() -> None:
    assert "list_queues" in SHARED
    assert OWN.keys().isdisjoint(LEDGER)


def test_a_statement_names_only_what_its_login_may_use(db: Db) -> None:
    granted: dict[str, set[str]] = defaultdict(set)
    for row in db.execute("SELECT role, object FROM cronledger.decided_grants()"):
        granted[row["role"]].add(row["object"])
    for name in STATEMENTS:
        role = "operator" if name.startswith(("show_payload", "show_target")) else "viewer"
        named = set(re.findall(r"\{schema\}\.(\w+)", body(name)))
        assert named <= granted["PUBLIC"] | granted[f"cronledger_{role}"], name


def test_a_statement_is_bounded_and_explained() -> None:
    assert STATEMENTS
    for name in STATEMENTS:
        text = head(name)
        assert text.startswith("-- ") and "No lock." in text, name
        assert not name.startswith("list_") or "LIMIT" in body(name), name
