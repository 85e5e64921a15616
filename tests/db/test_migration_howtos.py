"""docs/howto/from-celery-beat.md and from-apscheduler.md: the jobs of cronledger are run."""

import ast
import re
from typing import Any

import pytest

from cronledger.declaring.app import App
from cronledger.testing.assertions import assert_fires
from tests.db.support.whole_replica import Whole
from tests.db.test_python_howtos import HOWTO, run_snippets

PAGES = ["from-celery-beat.md", "from-apscheduler.md"]


def documented(page: str) -> App:
    app: App = run_snippets(page, "from cronledger")["app"]
    return app


@pytest.mark.parametrize("page", PAGES)
async def test_the_jobs_of_the_documentation_run(whole: Whole, page: str) -> None:
    whole.app = documented(page)
    async with whole.replica(queues=("default", "reports")):
        rows: dict[str, Any] = {job: await whole.run(job) for job in ("report", "sync")}
    assert {job: row["result"] for job, row in rows.items()} == {
        "report": "sent", "sync": "synchronized eu",
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_the_schedules_of_the_documentation_are_those_of_the_other_scheduler(page: str) -> None:
    jobs = documented(page).jobs
    assert_fires(jobs["report"], "2027-03-26", at=["06:30"])  # a Friday
    assert_fires(jobs["report"], "2027-03-27", times=0)
    assert_fires(jobs["report"], "2027-03-28", times=0)
    assert_fires(jobs["sync"], "2027-03-26", times=960)


@pytest.mark.parametrize("page", PAGES)
def test_the_rules_of_the_documentation_for_clock_changes(page: str) -> None:
    text = (HOWTO / page).read_text("utf-8")
    assert "at 03:00, right after the gap" in text
    zone = "Europe/Berlin"
    assert_fires("30 2 * * *", "2027-03-28", zone=zone, at=["03:00"])
    assert_fires("30 2 * * *", "2027-10-31", zone=zone, at=["02:30+02:00"])
    assert_fires("*/30 * * * *", "2027-10-31", zone=zone, times=50)


def test_weekdays_in_a_month_are_written_as_documented() -> None:
    assert_fires("0 9 L * *", "2027-02-28", at=["09:00"])
    assert_fires("0 9 * * fri#2", "2027-03-12", at=["09:00"])
    assert_fires("0 9 * * L5", "2027-03-26", at=["09:00"])


@pytest.mark.parametrize("page", PAGES)
def test_the_snippets_of_the_other_scheduler_are_python(page: str) -> None:
    found = re.findall(r"```python\n(.*?)```", (HOWTO / page).read_text("utf-8"), re.DOTALL)
    (other,) = [snippet for snippet in found if "cronledger" not in snippet]
    ast.parse(other)
