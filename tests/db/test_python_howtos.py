"""Pages of docs/howto: their Python snippets are run."""

import ast
import sys
from types import ModuleType

import pytest

from cronledger import Context
from cronledger.testing.assertions import assert_fires
from tests.db.support.whole_replica import Whole
from tests.docs.support.pages import run_snippets, snippets


@pytest.mark.long
async def test_the_resources_of_the_documentation_reach_their_handlers(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.rows("CREATE TABLE carts (expires_at timestamptz)")
    whole.rows("INSERT INTO carts VALUES ('-infinity'), ('infinity'), ('infinity')")
    monkeypatch.setenv("SHOP_DATABASE_URL", whole.url)
    whole.app = run_snippets("howto/resources.md")["app"]
    async with whole.replica():
        rows = [await whole.run(job) for job in ("expire_carts", "count_carts", "ping")]
    assert [(row["status"], row["result"]) for row in rows] == [
        ("SUCCESS", 1), ("SUCCESS", 2), ("SUCCESS", "open"),
    ]  # fmt: skip


@pytest.mark.long
async def test_the_middleware_of_the_documentation_decides(whole: Whole) -> None:
    documented = run_snippets("howto/middleware.md")
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
    documented = run_snippets("howto/testing.md", "import export")
    tests = [value for name, value in documented.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


@pytest.mark.parametrize("page", ["howto/from-celery-beat.md", "howto/from-apscheduler.md"])
@pytest.mark.long
async def test_the_jobs_of_the_documentation_fire_as_those_of_the_other_scheduler(
    whole: Whole, page: str
) -> None:
    (other,) = [text for text in snippets(page, "python") if "cronledger" not in text]
    ast.parse(other)
    whole.app = run_snippets(page, "from cronledger")["app"]
    async with whole.replica(queues=("default", "reports")):
        results = [(await whole.run(job))["result"] for job in ("report", "sync")]
    assert results == ["sent", "synchronized eu"]
    jobs = whole.app.jobs
    assert_fires(jobs["report"], "2027-03-26", at=["06:30"])  # a Friday
    assert_fires(jobs["report"], "2027-03-27", times=0)
    assert_fires(jobs["report"], "2027-03-28", times=0)
    assert_fires(jobs["sync"], "2027-03-26", times=960)
