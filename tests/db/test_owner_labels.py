"""Owner and labels of a job: where they are declared, what an edit of them does, who finds them."""

import json
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cronledger import App, AsyncClient, Client
from cronledger.cli import main
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.apply import apply
from cronledger.sources.toml import load
from tests.db.support.engine import Ledger, runners

MINUTE = timedelta(minutes=1)

FILE = """
[defaults]
owner = "platform"
labels = { team = "core", tier = "1" }

[jobs.report]
schedule = "* * * * *"
command = ["true"]
owner = "data"
labels = { team = "data" }

[jobs.tidy]
schedule = "* * * * *"
command = ["true"]
"""
VIEWS = {
    "ledger": "job_name", "execution_status": "job_name", "job_status": "job_name",
    "job_details": "name", "job_overview": "name", "running": "job_name", "overdue": "job_name",
    "recent_failures": "job_name", "upcoming": "job_name", "crashes": "job_name",
}  # fmt: skip


@pytest.fixture
def declared(ledger: Ledger, database_url: str, tmp_path: Path) -> Ledger:
    """The jobs of FILE."""
    (tmp_path / "jobs.toml").write_text(FILE)
    apply(database_url, load(tmp_path / "jobs.toml").jobs, source="file")
    return ledger


def command(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"CRONLEDGER_DATABASE_URL": url})


def test_a_file_declares_them_with_defaults(declared: Ledger) -> None:
    assert declared.values("SELECT name, owner, labels FROM job_details ORDER BY name") == [
        ("report", "data", {"team": "data"}),
        ("tidy", "platform", {"team": "core", "tier": "1"}),
    ]


def test_a_wrong_owner_or_label_is_named() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"owner": " "}, "owner"),
        ({"owner": "a\nb"}, "owner"),
        ({"owner": "x" * 201}, "owner"),
        ({"labels": {"a b": "x"}}, r"labels\.a b"),
        ({"labels": {"team": 1}}, r"labels\.team"),
        ({"labels": {"team": ""}}, r"labels\.team"),
        ({"labels": {"team": "x" * 201}}, r"labels\.team"),
        ({"labels": {f"k{n}": "x" for n in range(51)}}, "labels"),
        ({"labels": ["team"]}, "labels"),
    ]
    for policy, field in wrong:
        with pytest.raises(ConfigurationError, match=rf"jobs\.report\.{field} = .*; .*") as caught:
            App("shop").job("* * * * *", name="report", **policy)(lambda: None)
        assert len(caught.value.problems) == 1


def test_an_app_declares_them_and_the_default_is_not_part_of_the_definition(
    ledger: Ledger, database_url: str
) -> None:
    app = App("shop")

    @app.job("* * * * *", owner="data", labels={"team": "data"})
    def report() -> None: ...

    @app.job("* * * * *", labels={})
    def tidy() -> None: ...

    @app.job("* * * * *")
    def plain() -> None: ...

    apply(database_url, list(app.jobs.values()), source="shop")
    found = ledger.values("SELECT name, owner, labels FROM job_details ORDER BY name")
    assert found == [
        ("plain", None, None), ("report", "data", {"team": "data"}), ("tidy", None, None),
    ]  # fmt: skip
    # A definition without them is the same as one from before there were any.
    definition = ledger.one("SELECT definition FROM job_revisions WHERE job_name = 'plain'")
    assert not definition.keys() & {"owner", "labels"}


async def test_an_edit_disturbs_no_execution(ledger: Ledger, database_url: str) -> None:
    ledger.job("daily", schedule="0 13 * * *")
    ledger.job("minutely", schedule="* * * * *", overlap="allow")
    ledger.job("later", schedule=None)
    executions = "SELECT id, status, revision, lease_token, due_at FROM executions ORDER BY id"
    plans = "SELECT job_name, planned_through, next_plan_time FROM schedules ORDER BY job_name"
    async with runners(database_url, {}) as (one,):
        await one.settle()
        ledger.travel(by=MINUTE)
        (started,) = await one.settle()
        waiting = ledger.trigger("later")
        before, planned = ledger.values(executions), ledger.values(plans)
        assert [row[0] for row in before] == [started.claimed.id, waiting]
        ledger.values("""UPDATE jobs SET owner = 'data', labels = '{"team": "data"}'""")
        ledger.values("UPDATE jobs SET owner = 'data'")  # no edit
        assert ledger.values(executions) == before
        assert set(ledger.values("SELECT revision FROM jobs")) == {2}
        (late,) = await one.settle()
        assert (late.claimed.id, late.claimed.revision) == (waiting, 1)
        replanned = ledger.values(plans)
        assert [row[2] for row in replanned] == [row[2] for row in planned]
        assert all(new[1] >= old[1] for new, old in zip(replanned, planned, strict=True))
        ledger.travel(by=MINUTE)
        (again,) = await one.settle()
    assert (again.claimed.key.job_name, again.claimed.revision) == ("minutely", 2)


def test_every_view_of_jobs_and_executions_has_them(declared: Ledger) -> None:
    for view, name in VIEWS.items():
        declared.values(f"SELECT {name}, owner, labels FROM {view} WHERE labels @> '{{}}'")
    declared.trigger("report")
    declared.values(
        "INSERT INTO skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,"
        " count, reason, revision) VALUES ('tidy', 'global', 'global', db_now(), db_now(), 1,"
        " 'missed', 1), ('gone', 'global', 'global', db_now(), db_now(), 1, 'missed', 1)"
    )
    assert declared.values("SELECT kind, job_name, owner, labels FROM ledger ORDER BY 1, 2") == [
        ("execution", "report", "data", {"team": "data"}),
        ("skip", "gone", None, None),
        ("skip", "tidy", "platform", {"team": "core", "tier": "1"}),
    ]
    for view in ("execution_status", "job_status"):
        found = declared.values(f"SELECT owner, labels FROM {view} WHERE job_name = 'report'")
        assert found == [("data", {"team": "data"})]


def test_a_diff_shows_them(declared: Ledger, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(FILE.replace('team = "data"', 'team = "bi"'))
    shown = command(
        database_url, "jobs", "diff", str(tmp_path / "jobs.toml"), "--source", "file", "--days", "1"
    )
    assert '    labels: {"team": "data"} -> {"team": "bi"}' in shown.stdout.splitlines()
    assert "changed tidy" not in shown.stdout


def test_commands_filter(declared: Ledger, database_url: str) -> None:
    for job in ("report", "tidy"):
        declared.trigger(job)
    filters: list[tuple[list[str], list[str]]] = [
        ([], ["report", "tidy"]),
        (["--owner", "data"], ["report"]),
        (["--label", "team=core"], ["tidy"]),
        (["--label", "team=core", "--label", "tier=1"], ["tidy"]),
        (["--label", "team=data", "--label", "tier=1"], []),
        (["--owner", "platform", "--label", "team=data"], []),
        (["--label", "team=Data"], []),
    ]
    for (options, found), (listing, key) in product(
        filters, (("jobs", "name"), ("executions", "job_name"))
    ):
        said = command(database_url, listing, "list", "--json", *options)
        rows = json.loads(said.stdout)
        assert sorted(row[key] for row in rows) == found, (options, listing)
        assert all(row["owner"] and row["labels"] for row in rows)


def test_a_wrong_filter_is_refused(database_url: str) -> None:
    for given, message in (
        (["team"], "'team' is not KEY=VALUE; write it like team=data"),
        (["=data"], "'=data' is not KEY=VALUE; write it like team=data"),
        (["team=data", "team=bi"], "'team' is given as 'data' and as 'bi'"),
    ):
        options = [option for label in given for option in ("--label", label)]
        said = command(database_url, "jobs", "list", *options)
        assert (said.exit_code, message in said.stderr) == (2, True), said.stderr


async def test_the_values_of_clients_have_them_unless_the_job_was_deleted(
    declared: Ledger, database_url: str
) -> None:
    made = declared.trigger("report")
    declared.values(
        "INSERT INTO skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,"
        " count, reason, revision) VALUES ('report', 'global', 'global', db_now(), db_now(), 1,"
        " 'missed', 1)"
    )
    with Client(database_url) as client:
        one, (listed,), (skip,) = client.execution(made), client.executions(), client.skips()
        async with AsyncClient(database_url) as asynchronous:
            other = await asynchronous.execution(made)
        assert {(each.owner, json.dumps(each.labels)) for each in (one, listed, skip, other)} == {
            ("data", '{"team": "data"}')
        }
        declared.values("DELETE FROM jobs WHERE name = 'report'")
        found = client.execution(made)
    assert (found.owner, found.labels) == (None, None)
