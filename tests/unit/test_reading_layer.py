"""Commands and clients read views and call functions, and name no table of the ledger."""

import ast
import re
from pathlib import Path

from cronledger.ledger.migrate import directory

SOURCE = Path(__file__).parents[2] / "src" / "cronledger"
READERS = (
    "ledger/calls.py", "ledger/reports.py", "ledger/audits.py", "explain/doctor_ledger.py",
    "explain/doctor_server.py", "explain/doctor_verification.py",
)  # fmt: skip
CALLS = {"Call", "_read", "_one", "_permitted", "_stream", "row", "rows"}
OPEN = {"schema_migrations", "calendars", "calendar_revisions"}  # every group may read them


def tables() -> set[str]:
    texts = [path.read_text("utf-8") for path in directory().glob("[0-9]*.sql")]
    made = re.findall(r"CREATE TABLE \{schema\}\.(\w+)", "\n".join(texts))
    return set(made) - OPEN


def statements() -> set[str]:
    """The names of the statements that the readers send."""
    found = set()
    for reader in READERS:
        for node in ast.walk(ast.parse((SOURCE / reader).read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                first = node.args[0] if node.args else None
                name = first.value if isinstance(first, ast.Constant) else None
                if called in CALLS and isinstance(name, str):
                    found.add(name)
    return found


def named(text: str) -> set[str]:
    code = re.sub(r"--.*", "", text)
    # NULL::{schema}.jobs is a type, which everybody may use.
    return set(re.findall(r"(?<!::)\{schema\}\.(\w+)(?!\w*\()", code))


def test_readers_name_no_table() -> None:
    sent = statements()
    assert len(sent) > 30
    assert {"jobs", "executions", "schedules", "skips", "runners", "queues"} <= tables()
    texts = {name: (SOURCE / "ledger" / "sql" / f"{name}.sql").read_text("utf-8") for name in sent}
    found = {name: named(text) & tables() for name, text in texts.items()}
    assert {name: used for name, used in found.items() if used} == {}


def test_the_search_finds_tables() -> None:
    assert named("SELECT NULL::{schema}.jobs FROM {schema}.skips k -- {schema}.queues") == {"skips"}
