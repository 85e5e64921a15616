"""Channels in the ledger: how sources and SQL write them, and what of them is shown."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronledger import App
from cronledger.channels import Slack
from cronledger.rules.channels import Channel
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.apply import Applied, _Applying, apply
from cronledger.sources.diff import Diff, diff
from tests.db.support.engine import Ledger, waiting
from tests.waiting import eventually

SLACK = Slack(url="https://hooks.example.org/services/hunter2")
WORKS: dict[str, Any] = {"kind": "command", "command": ["true"]}


def app(*names: str, channels: dict[str, Channel] | None = None) -> App:
    """An App with these channels and jobs, each of which names the channel `ops`."""
    made = App("app", channels=channels)
    for name in names:
        made.job(name=name, notify="ops")(lambda: None)
    return made


def applied(url: str, declared: App, source: str = "app") -> Applied:
    return apply(url, list(declared.jobs.values()), channels=declared.channels, source=source)


def different(url: str, declared: App, source: str = "app") -> Diff:
    return diff(
        url, list(declared.jobs.values()), channels=declared.channels, source=source, days=1
    )


def row(ledger: Ledger, name: str = "ops", settings: Any = WORKS) -> None:
    ledger.values("INSERT INTO channels (name, settings) VALUES (%s, %s)", name, Jsonb(settings))


def assert_refused(ledger: Ledger, declared: App, *messages: str, source: str = "app") -> None:
    """Fail unless `apply` and `diff` refuse what a source declares with these messages."""
    calls: tuple[Any, ...] = (applied, different)
    for call in calls:
        with pytest.raises(ConfigurationError) as caught:
            call(ledger.url, declared, source)
        assert str(caught.value).splitlines() == [*messages]


def test_a_channel_and_its_jobs_are_applied_and_retired_together(ledger: Ledger) -> None:
    declared = app("a", channels={"ops": SLACK})
    found = applied(ledger.url, declared)
    assert (found.added, found.channels) == (("a",), {"ops": "added"})
    again = applied(ledger.url, declared)
    assert (again.added, again.changed, again.retired, again.unchanged) == ((), (), (), 1)
    assert (again.channels, different(ledger.url, declared).channels) == ({}, ())
    columns = "SELECT name, kind, source FROM channel_status"
    assert ledger.values(columns) == [("ops", "slack", "app")]
    other = app("a", channels={"ops": Slack(url="https://other.example.org/hunter3")})
    (change,) = different(ledger.url, other).channels
    assert (change.channel, change.change) == ("ops", "changed")
    assert (change.before, change.after) == (
        {"kind": "slack", "url": "https://hooks.example.org/***"},
        {"kind": "slack", "url": "https://other.example.org/***"},
    )
    assert applied(ledger.url, other).channels == {"ops": "changed"}
    changes = different(ledger.url, app())
    assert [(change.job, change.change) for change in changes.changes] == [("a", "retired")]
    assert [(x.channel, x.change, x.after) for x in changes.channels] == [("ops", "retired", None)]
    gone = applied(ledger.url, app())
    assert (gone.retired, gone.channels) == (("a",), {"ops": "retired"})
    assert ledger.values(columns) == []
    audit = "SELECT verb, object FROM audit WHERE object_kind = 'channel' ORDER BY id"
    assert ledger.values(audit) == [
        (verb, "ops") for verb in ("add_channel", "edit_channel", "delete_channel")
    ]


def test_a_channel_belongs_to_one_source(ledger: Ledger) -> None:
    row(ledger)
    assert applied(ledger.url, app(channels={"ops": SLACK})).channels == {"ops": "changed"}
    assert_refused(
        ledger, app(channels={"ops": SLACK}),
        "other: channels.ops = ops: belongs to the source 'app'; if it is the same file, add "
        "--source app; if the file or App has moved, run `cronledger sources rename app "
        "other`; otherwise use another name, or remove the channel there first", source="other",
    )  # fmt: skip
    ledger.values("SELECT rename_source('app', 'other')")
    assert applied(ledger.url, app(channels={"ops": SLACK}), "other").channels == {}


def test_a_channel_that_a_job_names_is_declared_and_stays_so(ledger: Ledger) -> None:
    missing = (
        "app: jobs.a.notify = ops: names a channel that does not exist; declare the channel, or "
        "correct the name"
    )
    assert_refused(ledger, app("a"), missing)
    assert ledger.values("SELECT name FROM jobs") == []
    applied(ledger.url, app("a", channels={"ops": SLACK}))
    assert_refused(ledger, app("a"), missing)
    assert ledger.values("SELECT name FROM channel_status") == ["ops"]


@pytest.mark.parametrize("first", ["drops", "names"])
async def test_of_two_sources_that_drop_and_name_a_channel_at_once_one_is_refused(
    ledger: Ledger, first: str
) -> None:
    applied(ledger.url, app(channels={"ops": SLACK}), "channels")
    changes = {"drops": (app(), "channels"), "names": (app("a"), "app")}
    declared, source = changes.pop(first)
    ((later, other),) = changes.values()
    with ThreadPoolExecutor(1) as pool, psycopg.connect(ledger.url) as c:
        _Applying(c, "cronledger", source, None).apply(
            list(declared.jobs.values()), declared.channels, {}, None, force=False
        )
        second = pool.submit(applied, ledger.url, later, other)
        await eventually("it waits, or has ended", lambda: waiting(ledger) or second.done())
        assert not second.done()
        c.commit()
        with pytest.raises(ConfigurationError, match=r"channel|notify"):
            second.result(timeout=60)
    assert ledger.values("SELECT FROM missing_channels") == []


def test_a_source_keeps_a_channel_that_another_names(ledger: Ledger) -> None:
    applied(ledger.url, app(channels={"ops": SLACK}), "channels")
    applied(ledger.url, app("a"))
    ledger.job("b", handler="external", notify=Jsonb([{"channel": "ops"}]))
    still_named = [
        f"channels: channels.ops: is no longer declared, but the job '{job}' of {owner} "
        "names it in notify; declare it again, or remove it from notify of that job first"
        for job, owner in (("a", "the source 'app'"), ("b", "SQL"))
    ]
    assert_refused(ledger, app(), *still_named, source="channels")
    assert ledger.values("SELECT name FROM channel_status") == ["ops"]


NO_CHANNELS: list[tuple[Any, str]] = [
    ("kind", "has settings that are not an object"),
    ({"kind": "sms"}, 'has "kind" = "sms", which is not a kind of channel'),
    ({"kind": "slack"}, 'has no "url"'),
    (WORKS | {"url": "hunter2"}, 'has "url", which kind = command does not use'),
    (
        {"kind": "email", "to": "a@b", "sender": "a@b", "port": "25"},
        'has "port" of the JSON type string instead of number',
    ),
    (WORKS | {"on_ledger": ["failed"]}, 'has "on_ledger" = ["failed"]'),
    (WORKS | {"cwd": "x" * 2**20}, "has settings whose JSON "),
]


def test_sql_refuses_a_row_that_is_no_channel(ledger: Ledger) -> None:
    row(ledger, "edited")
    edit = "UPDATE channels SET settings = %s"
    for settings, message in NO_CHANNELS:
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
            ledger.values(edit, Jsonb(settings))
        assert f"channel edited: it {message}" in str(caught.value)
        assert caught.value.diag.message_hint
        assert "hunter2" not in str(caught.value)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="another name than 1 to 100"):
        row(ledger, "a b")
    ledger.values(edit, Jsonb(WORKS | {"cwd": "/srv"}))


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
    ({"kind": "slack", "url": "hooks/hunter2"}, {"kind": "slack", "url": "***"}),
]  # fmt: skip


def test_what_may_be_secret_is_masked(ledger: Ledger) -> None:
    for number, (channel, shown) in enumerate(MASKED):
        masked = ledger.one("SELECT cronledger_internal.masked_channel(%s)", Jsonb(channel))
        assert masked == shown
        row(ledger, f"c{number}", channel)
    assert "hunter2" not in json.dumps(ledger.values("SELECT to_jsonb(c) FROM channel_status c"))
    assert "hunter2" not in json.dumps(ledger.values("SELECT to_jsonb(a) - 'at' FROM audit a"))
