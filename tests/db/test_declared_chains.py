"""What a source declares that its jobs require: apply and diff."""

from pathlib import Path
from typing import Any

import pytest

from cronledger.rules.chains import TIMING
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.apply import Applied, apply
from cronledger.sources.diff import diff
from cronledger.sources.toml import load
from tests.db.support.engine import Ledger

CHAIN = """
[jobs.extract]
schedule = "{schedule}"
external = true

[jobs.clean]
after = ["extract"]
external = true

[jobs.audit]
after = {{ job = "clean" }}
wait_at_most = "2h"
external = true

[jobs.weekly]
schedule = "0 6 * * 1"
requires = ["audit", {{ job = "extract", scope = "same" }}]
external = true
"""


@pytest.fixture
def declared(tmp_path: Path) -> Any:
    def jobs(text: str) -> tuple[Job, ...]:
        file = tmp_path / "jobs.toml"
        file.write_text(text)
        return load(file).jobs

    return jobs


def applied(ledger: Ledger, jobs: tuple[Job, ...], source: str = "s") -> Applied:
    return apply(ledger.url, jobs, source=source)


def test_a_chain_changes_with_its_first_job_and_not_by_another_apply(
    ledger: Ledger, declared: Any
) -> None:
    jobs = declared(CHAIN.format(schedule="H H * * *"))
    assert set(applied(ledger, jobs).added) == {"audit", "clean", "extract", "weekly"}
    again = applied(ledger, jobs)
    assert (again.added, again.changed, again.unchanged) == ((), (), 4)
    assert diff(ledger.url, jobs, source="s", days=7).changes == ()
    rows = ledger.values("SELECT schedule, after -> 0 -> 'root' ->> 'job' FROM jobs ORDER BY name")
    assert rows == [
        ("H H * * *", "extract"), ("H H * * *", None), ("H H * * *", None), ("0 6 * * 1", None),
    ]  # fmt: skip
    jobs = declared(CHAIN.format(schedule="0 4 * * *"))
    found = diff(ledger.url, jobs, source="s", days=2)
    assert {one.job: set(one.fields) for one in found.changes} == {
        "audit": {"schedule"}, "clean": {"schedule"}, "extract": {"schedule"},
    }  # fmt: skip
    assert {one.appear.count for one in found.changes} == {2}
    assert set(applied(ledger, jobs).changed) == {"audit", "clean", "extract"}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[jobs.extract]", "[jobs.extract2]", "is a job that does not exist"),
        (
            '[jobs.extract]\nschedule = "@daily"', '[jobs.extract]\nafter = ["audit"]',
            "is part of a cycle: extract, which requires audit, which requires clean",
        ),
    ],
)  # fmt: skip
def test_a_source_is_refused_whose_jobs_require_what_they_cannot_have(
    ledger: Ledger, declared: Any, before: str, after: str, message: str
) -> None:
    text = CHAIN.format(schedule="@daily")
    applied(ledger, declared(text))
    jobs = declared(text.replace(before, after, 1))
    for refusing in (
        lambda: applied(ledger, jobs),
        lambda: diff(ledger.url, jobs, source="s", days=2),
    ):
        with pytest.raises(ConfigurationError, match=message):
            refusing()


def test_jobs_may_require_those_of_another_source(ledger: Ledger, declared: Any) -> None:
    applied(ledger, declared('[jobs.extract]\nschedule = "@daily"\nexternal = true'), "first")
    jobs = declared('[jobs.load]\nafter = "extract"\nexternal = true')
    assert applied(ledger, jobs, "second").added == ("load",)
    assert diff(ledger.url, jobs, source="second", days=1).changes == ()
    misspelt = declared('[jobs.x]\nafter = "extrct"\nexternal = true')
    with pytest.raises(ConfigurationError, match="did you mean `extract`"):
        applied(ledger, misspelt, "third")
    looped = declared('[jobs.extract]\nafter = "load"\nexternal = true')
    with pytest.raises(ConfigurationError, match="which requires load, which requires extract"):
        applied(ledger, looped, "first")
    assert applied(ledger, (), "first").retired == ("extract",)
    assert ledger.one("SELECT gate_problem FROM jobs WHERE name = 'load'") is not None


def test_files_and_sql_copy_the_same_columns(ledger: Ledger) -> None:
    assert ledger.one("SELECT cronledger_internal.timing_columns()") == list(TIMING)
