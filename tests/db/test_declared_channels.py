"""Channels in the ledger: how sources and SQL write them, and what of them is shown."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronledger import App
from cronledger.channels import Slack
from cronledger.explain.doctor_ledger import jobs as check_jobs
from cronledger.explain.findings import DoctorContext
from cronledger.rules.channels import Channel
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import Settings
from cronledger.sources.apply import Applied, _Applying, apply, retire
from cronledger.sources.diff import diff
from tests.db.support.engine import Ledger, waiting
from tests.waiting import eventually

SLACK = Slack(url="https://hooks.example.org/services/hunter2")
WORKS: dict[str, Any] = {"kind": "command", "command": ["true"]}


def jobs(*names: str, channels: dict[str, Channel] | None = None) -> Sequence[Any]:
    """An App with these jobs, each of which names the channel `ops`."""
    app = App(channels=channels)
    for name in names:
        app.job(name=name, notify="ops")(lambda: None)
    return list(app.jobs.values())


def applied(url: str, declared: Sequence[Any], source: str = "app") -> Applied:
    return apply(url, declared, source=source)


def row(ledger: Ledger, name: str = "alerts.ops", **columns: Any) -> None:
    values = {"queue": "alerts", "handler": "external", "target": {"channel": WORKS}} | columns
    ledger.job(name, **values)


CALLS: tuple[Any, ...] = (apply, lambda *a, **k: diff(*a, **k, days=1))
"""A refusal of `apply` is one of `diff` too."""


def test_a_channel_and_its_jobs_are_applied_and_retired_together(ledger: Ledger) -> None:
    found = applied(ledger.url, jobs("a", channels={"ops": SLACK}))
    assert (found.added, found.channels) == (("a", "alerts.ops"), ("alerts.ops",))
    again = applied(ledger.url, jobs("a", channels={"ops": SLACK}))
    assert (again.added, again.changed, again.retired, again.unchanged) == ((), (), (), 2)
    assert ledger.values("SELECT name, kind, source FROM channels") == [("ops", "slack", "app")]
    changes = diff(ledger.url, [], source="app", days=1).changes
    assert [(change.job, change.change, change.channel) for change in changes] == [
        ("a", "retired", None), ("alerts.ops", "retired", "ops")
    ]  # fmt: skip
    gone = applied(ledger.url, [])
    assert (gone.retired, gone.channels) == (("a", "alerts.ops"), ("alerts.ops",))
    assert ledger.values("SELECT name FROM channels") == []


def test_a_channel_that_a_job_names_is_declared_and_stays_so(ledger: Ledger) -> None:
    for call in CALLS:
        with pytest.raises(ConfigurationError) as caught:
            call(ledger.url, jobs("a"), source="app")
        assert str(caught.value) == (
            "app: jobs.a.notify = ops: names a channel that does not exist; declare the channel, "
            "or correct the name"
        )
    assert ledger.values("SELECT name FROM jobs") == []
    applied(ledger.url, jobs("a", channels={"ops": SLACK}))
    for call in CALLS:
        with pytest.raises(ConfigurationError, match=r"jobs\.a\.notify = ops: names a channel"):
            call(ledger.url, jobs("a"), source="app")
    assert ledger.values("SELECT name FROM channels") == ["ops"]


@pytest.mark.parametrize("first", ["drops", "names"])
async def test_of_two_sources_that_drop_and_name_a_channel_at_once_one_is_refused(
    ledger: Ledger, first: str
) -> None:
    applied(ledger.url, jobs(channels={"ops": SLACK}), "channels")
    changes = {"drops": (jobs(), "channels"), "names": (jobs("a"), "app")}
    declared, source = changes.pop(first)
    ((later, other),) = changes.values()
    with ThreadPoolExecutor(1) as pool, psycopg.connect(ledger.url) as c:
        _Applying(c, "cronledger", source, None).apply(declared, None, force=False)
        second = pool.submit(applied, ledger.url, later, other)
        await eventually("it waits, or has ended", lambda: waiting(ledger) or second.done())
        assert not second.done()
        c.commit()
        with pytest.raises(ConfigurationError, match=r"channel|notify"):
            second.result(timeout=60)
    assert ledger.values("SELECT FROM missing_channels") == []


def test_a_source_keeps_a_channel_that_another_names(ledger: Ledger) -> None:
    applied(ledger.url, jobs(channels={"ops": SLACK}), "channels")
    applied(ledger.url, jobs("a"))
    ledger.job("b", handler="external", notify=Jsonb([{"channel": "ops"}]))
    for call in CALLS:
        with pytest.raises(ConfigurationError) as caught:
            call(ledger.url, [], source="channels")
        assert str(caught.value).splitlines() == [
            f"channels: channels.ops: is not declared any more, but the job '{job}' of {owner} "
            "names it in notify; declare it again, or remove it from notify of that job first"
            for job, owner in (("a", "the source 'app'"), ("b", "SQL"))
        ]
    assert ledger.values("SELECT name FROM channels") == ["ops"]


def test_a_channel_stays_while_another_runner_has_its_app(ledger: Ledger) -> None:
    declared = jobs("a", channels={"ops": SLACK})
    applied(ledger.url, declared)
    function = next(job.target["python"] for job in declared if job.name == "a")
    ledger.runner("other", handlers=[function])
    names = ["a", "alerts.ops"]
    kept = retire(ledger.url, names, source="app", runner="this")
    assert (kept.retired, kept.kept) == ((), ("a", "alerts.ops"))
    ledger.values("UPDATE runners SET state = 'stopped'")
    assert retire(ledger.url, names, source="app", runner="this").retired == tuple(names)


def of(**channel: Any) -> dict[str, Any]:
    return {"target": {"channel": channel}}


RESERVED = "queue = alerts, which is reserved for channels"
NO_CHANNELS: list[tuple[dict[str, Any], str]] = [
    ({"name": "mine", "target": {}}, f"job mine: {RESERVED}"),
    ({"target": {}}, f"job alerts.ops: {RESERVED}"),
    ({"name": "ops"}, f"job ops: {RESERVED}"),
    ({"handler": "command", "target": {"command": ["true"]}}, f"job alerts.ops: {RESERVED}"),
    (of(), 'has no "kind"'),
    (of(kind="sms"), 'has "kind" = "sms", which is not a kind of channel'),
    (of(kind="slack"), 'has no "url"'),
    (of(**WORKS, url="hunter2"), 'has "url", which kind = command does not use'),
    (
        of(kind="email", to="a@b", sender="a@b", port="25"),
        'has "port" of the JSON type string instead of number',
    ),
    (of(**WORKS, on_ledger=["failed"]), 'has "on_ledger" = ["failed"]'),
]


def test_sql_refuses_a_row_that_is_no_channel(ledger: Ledger) -> None:
    for columns, message in NO_CHANNELS:
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
            row(ledger, **{"name": "alerts.ops", **columns})
        assert message in str(caught.value)
        assert RESERVED in message or "the channel in its target has" in str(caught.value)
        assert caught.value.diag.message_hint
        assert "hunter2" not in str(caught.value)


def test_sql_refuses_an_edit_to_what_is_no_channel(ledger: Ledger) -> None:
    row(ledger)
    ledger.job("mine", handler="external", target={})
    for name, columns in (("alerts.ops", {"target": {}}), ("mine", {"queue": "alerts"})):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="reserved for channels"):
            ledger.edit(name, **columns)
    ledger.edit("alerts.ops", target={"channel": {**WORKS, "cwd": "/srv"}})


MASKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"kind": "webhook", "url": "https://u:hunter2@example.org:8080/hunter2?t=hunter2",
         "headers": {"A": "hunter2"}, "secret": {"env": "KEY"}},
        {"kind": "webhook", "url": "https://example.org:8080/***", "headers": {"A": "***"},
         "secret": {"env": "KEY"}},
    ),
    ({"kind": "apprise", "urls": ["pover://hunter2"]}, {"kind": "apprise", "urls": "***"}),
    (
        {"kind": "command", "command": ["page", "--password=hunter2"], "env": {"A": "hunter2"}},
        {"kind": "command", "command": ["page", "--password=***"], "env": {"A": "***"}},
    ),
    ({"kind": "slack", "url": {"env": "URL"}}, {"kind": "slack", "url": {"env": "URL"}}),
    (
        {"kind": "slack", "url": "HTTPS://u:hunter2@Example.org/hunter2"},
        {"kind": "slack", "url": "HTTPS://Example.org/***"},
    ),
    ({"kind": "slack", "url": "hooks/hunter2"}, {"kind": "slack", "url": "***"}),
]  # fmt: skip


def test_what_may_be_secret_is_masked(ledger: Ledger) -> None:
    for number, (channel, _) in enumerate(MASKED):
        row(ledger, f"alerts.c{number}", target={"channel": channel})
    targets = ledger.values("SELECT target FROM job_targets ORDER BY name")
    assert targets == [{"channel": shown} for _, shown in MASKED]
    assert "hunter2" not in json.dumps(ledger.values("SELECT to_jsonb(c) FROM channels c"))


def test_the_view_has_the_last_delivery(ledger: Ledger) -> None:
    row(ledger)
    columns = "delivery_id, delivery_status, delivery_error, delivery_at IS NOT NULL, paused_at"
    assert ledger.one(f"SELECT {columns} FROM channels") == (None, None, None, False, None)
    first, second = ledger.trigger("alerts.ops"), ledger.trigger("alerts.ops")
    assert ledger.one(f"SELECT {columns} FROM channels")[:2] == (second, "PENDING")
    for _ in range(2):
        ledger.values(
            "SELECT fail(c.id, c.lease_token, 'delivery_failed', E'no route\\nto host',"
            " final => true) FROM claim_next('alerts', 'w') c"
        )
    assert ledger.one(f"SELECT {columns} FROM channels") == (
        second, "FAILED", "delivery_failed: no route", True, None
    )  # fmt: skip
    assert first < second


def test_any_replica_delivers_to_a_channel(ledger: Ledger) -> None:
    row(ledger)

    def found() -> list[str]:
        with psycopg.connect(ledger.url, autocommit=True) as c:
            context = DoctorContext(c, Settings(), ledger.url)
            return [one.found for one in check_jobs(context) if one.severity != "ok"]

    ledger.runner("worker", version="external", queues=[])
    assert found() == ["no live runner can run alerts.ops (queue alerts, external)"]
    ledger.runner("replica")
    assert found() == []
