"""docs/howto/resources.md, middleware.md and testing.md: their Python snippets are run."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cronledger import Context
from tests.db.support.whole_replica import Whole

HOWTO = Path(__file__).parents[2] / "docs" / "howto"


def run_snippets(page: str, containing: str = "") -> dict[str, Any]:
    """Return the names that the snippets of a page define, which have `containing` in them."""
    text = (HOWTO / page).read_text("utf-8")
    found = [x for x in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if containing in x]
    assert found
    names: dict[str, Any] = {"__name__": "documented"}
    for snippet in found:
        exec(compile(snippet, page, "exec"), names)
    return names


async def test_the_resources_of_the_documentation_reach_their_handlers(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.rows("CREATE TABLE carts (expires_at timestamptz)")
    whole.rows("INSERT INTO carts VALUES ('-infinity'), ('infinity'), ('infinity')")
    monkeypatch.setenv("SHOP_DATABASE_URL", whole.url)
    whole.app = run_snippets("resources.md")["app"]
    async with whole.replica():
        rows = [await whole.run(job) for job in ("expire_carts", "count_carts", "ping")]
    assert [(row["status"], row["result"]) for row in rows] == [
        ("SUCCESS", 1), ("SUCCESS", 2), ("SUCCESS", "open"),
    ]  # fmt: skip


async def test_the_middleware_of_the_documentation_decides(whole: Whole) -> None:
    documented = run_snippets("middleware.md")
    whole.app = documented["app"]
    async with whole.replica():
        rows = {x: await whole.run("order", x) for x in ("away", "rare", "usual", "other")}
        rows["count"] = await whole.run("count")
    ended = {x: (row["status"], row["result"] or row["error_code"]) for x, row in rows.items()}
    assert ended == {
        "away": ("SUCCESS", "ordered"),
        "rare": ("FAILED", "sold_out"),
        "usual": ("SUCCESS", "ordered"),
        "other": ("SUCCESS", "nothing to order"),
        "count": ("SUCCESS", 7),
    }
    assert rows["away"]["attempt"] == 2
    assert documented["durations"].keys() == {"order", "count"}


def test_the_tests_of_the_documentation_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(ctx: Context) -> str:
        ctx.check_lease()
        return f"{ctx.resources['bucket']}/{ctx.scope_id}.csv"

    jobs = ModuleType("myproject.jobs")
    jobs.export = export  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "myproject", ModuleType("myproject"))
    monkeypatch.setitem(sys.modules, "myproject.jobs", jobs)
    documented = run_snippets("testing.md", "import export")
    tests = [value for name, value in documented.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
