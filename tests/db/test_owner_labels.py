"""Owner and labels of a job: where they are declared, what an edit of them does, who finds them."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cronledger import App, AsyncClient, Client
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.apply import apply
from cronledger.sources.toml import load
from tests.db.support.commands import command, read
from tests.db.support.engine import Ledger
from tests.db.support.rows import skip

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


def test_a_wrong_owner_or_label_is_named() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"owner": "a\nb"}, "owner"),
        ({"owner": "x" * 201}, "owner"),
        ({"labels": {"a b": "x"}}, r"labels\.a b"),
        ({"labels": {"team": 1}}, r"labels\.team"),
        ({"labels": {f"k{n}": "x" for n in range(51)}}, "labels"),
        ({"labels": ["team"]}, "labels"),
    ]
    for policy, field in wrong:
        with pytest.raises(ConfigurationError, match=rf"jobs\.report\.{field} = .*; .*") as caught:
            App("shop").job("* * * * *", name="report", **policy)(lambda: None)
        assert len(caught.value.problems) == 1


def test_an_app_declares_them_and_the_default_is_not_part_of_the_definition(ledger: Ledger) -> None:
    app = App("shop")

    @app.job("* * * * *", owner="data", labels={"team": "data"})
    def report() -> None: ...

    @app.job("* * * * *")
    def plain() -> None: ...

    apply(ledger.url, list(app.jobs.values()), source="shop")
    found = ledger.values("SELECT name, owner, labels FROM job_details ORDER BY name")
    assert found == [("plain", None, None), ("report", "data", {"team": "data"})]
    # A definition without them is the same as one from before there were any.
    definition = ledger.one("SELECT definition FROM job_revisions WHERE job_name = 'plain'")
    newer = {"owner", "labels", "runbook", "payload_schema", "retry_on", "never_retry_on"}
    assert not definition.keys() & newer
    for _ in range(2):
        ledger.edit("plain", owner="data")
    assert ledger.one("SELECT revision FROM jobs WHERE name = 'plain'") == 2


async def test_every_view_and_client_has_them_until_the_job_is_deleted(declared: Ledger) -> None:
    for view, name in VIEWS.items():
        declared.values(f"SELECT {name}, owner, labels FROM {view} WHERE labels @> '{{}}'")
    made = declared.trigger("report")
    for job in ("tidy", "gone"):
        skip(declared.db, declared.now(), job=job)
    assert declared.values("SELECT kind, job_name, owner, labels FROM ledger ORDER BY 1, 2") == [
        ("execution", "report", "data", {"team": "data"}),
        ("skip", "gone", None, None),
        ("skip", "tidy", "platform", {"team": "core", "tier": "1"}),
    ]
    for view in ("execution_status", "job_status"):
        found = declared.values(f"SELECT owner, labels FROM {view} WHERE job_name = 'report'")
        assert found == [("data", {"team": "data"})]
    with Client(declared.url) as client:
        skips = {skip.job: skip.labels for skip in client.skips()}
        assert skips["tidy"] == {"team": "core", "tier": "1"}
        async with AsyncClient(declared.url) as asynchronous:
            for one in (*client.executions(), await asynchronous.execution(made)):
                assert (one.owner, one.labels) == ("data", {"team": "data"})
        declared.values("DELETE FROM jobs WHERE name = 'report'")
        later = client.execution(made)
    assert (later.owner, later.labels) == (None, None)


@pytest.mark.long
def test_commands_filter(declared: Ledger, database_url: str) -> None:
    for job in ("report", "tidy"):
        declared.trigger(job)
    filters: list[tuple[list[str], list[str]]] = [
        ([], ["report", "tidy"]),
        (["--owner", "data"], ["report"]),
        (["--label", "team=core", "--label", "tier=1"], ["tidy"]),
        (["--owner", "platform", "--label", "team=data"], []),
        (["--label", "team=Data"], []),
    ]
    for (options, found), (listing, key) in product(
        filters, (("jobs", "name"), ("executions", "job_name"))
    ):
        rows = read(database_url, listing, "list", *options)
        assert sorted(row[key] for row in rows) == found, (options, listing)
        assert all(row["owner"] and row["labels"] for row in rows)


def test_a_wrong_filter_is_refused(database_url: str) -> None:
    for given, message in (
        (["team"], "'team' is not KEY=VALUE; write it like team=data"),
        (["=data"], "'=data' is not KEY=VALUE; write it like team=data"),
        (["team=data", "team=bi"], "'team' is given as 'data' and as 'bi'"),
    ):
        options = [option for label in given for option in ("--label", label)]
        assert message in command(database_url, "jobs", "list", *options, exit_code=2).stderr
