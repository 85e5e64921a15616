"""Pings of Healthchecks and check-ins of Sentry: what is reported of an execution, and when."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any
from uuid import UUID, uuid5

import psycopg
import pytest
import sentry_sdk
from aiohttp import web
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.testing import capture_logs

from cronledger.declaring.app import Context, Retry
from cronledger.engine.monitoring import monitoring, pings
from cronledger.engine.monitoring.pings import Ping, Pings
from cronledger.engine.monitoring.sentry import SentryCheckIns, monitor, slug
from cronledger.rules.model import Job, ScopeKey
from cronledger.sources.apply import apply
from tests.db.support.engine import Ledger
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually


class Checks:
    """A server with checks, which keeps the requests that it receives. While held, it hangs."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.status = 200
        self.open = asyncio.Event()
        self.open.set()
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, dict(request.query), await request.text()))
        await self.open.wait()
        return web.Response(status=self.status)

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.requests]


@pytest.fixture
async def checks() -> AsyncIterator[Checks]:
    made = Checks()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    made.open.set()
    await runner.cleanup()


async def test_each_attempt_reports_its_start_and_its_end(whole: Whole, checks: Checks) -> None:
    def flaky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Retry("0s", "no disk")
        return "done"

    job = whole.job(flaky, ping=f"{checks.url}/uuid?create=1", max_attempts=2)
    async with whole.replica(ping_allow_private=True):
        await whole.run(job)
        await eventually("four pings are received", lambda: len(checks.requests) == 4)
    assert checks.paths == ["/uuid/start", "/uuid/log", "/uuid/start", "/uuid"]
    runs = [query["rid"] for _, query, _ in checks.requests]
    assert runs[0] == runs[1] != runs[2] == runs[3]
    assert {query["create"] for _, query, _ in checks.requests} == {"1"}
    assert "no disk" in checks.requests[1][2]


async def test_the_exit_status_of_a_command_is_part_of_its_address(
    whole: Whole, checks: Checks
) -> None:
    target = {"command": ["sh", "-c", "echo no space left; exit 3"]}
    whole.declare("backup", "command", target, ping=f"{checks.url}/uuid")
    whole.declare("killed", "command", {"command": "kill -9 $$"}, ping=f"{checks.url}/other")
    async with whole.replica(ping_allow_private=True):
        await whole.run("backup")
        await eventually("its pings are received", lambda: len(checks.requests) == 2)
        await whole.run("killed")
        await eventually("its pings are received", lambda: len(checks.requests) == 4)
    assert checks.paths == ["/uuid/start", "/uuid/3", "/other/start", "/other/fail"]
    assert "no space left" in checks.requests[1][2]


async def test_a_failure_that_the_ledger_writes_as_cancelled_is_reported_as_such(
    whole: Whole, checks: Checks, database_url: str
) -> None:
    def failing() -> None:
        with psycopg.connect(database_url) as c:  # the replica is not notified
            c.execute("UPDATE cronledger.executions SET cancel_requested_at = cronledger.db_now()")
        raise ValueError("no disk")

    job = whole.job(failing, ping=f"{checks.url}/uuid")
    async with whole.replica(ping_allow_private=True):
        assert (await whole.run(job))["status"] == "CANCELLED"
        await eventually("both pings are received", lambda: len(checks.requests) == 2)
    assert checks.paths == ["/uuid/start", "/uuid/log"]
    assert checks.requests[1][2].startswith("CANCELLED\n")


async def test_a_check_that_hangs_delays_no_execution_and_no_drain(
    whole: Whole, checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronledger.engine.runtime.runtime.PING_SECONDS", 0.1)
    checks.open.clear()

    def quick() -> None: ...

    job = whole.job(quick, ping=f"{checks.url}/uuid")
    with capture_logs() as lines:
        async with whole.replica(ping_allow_private=True):
            ended = [await whole.run(job) for _ in range(3)]
    assert [row["status"] for row in ended] == ["SUCCESS"] * 3
    assert checks.paths == ["/uuid/start"]
    assert [line["event"] for line in lines].count("ping_dropped") == 6


async def test_a_swept_execution_is_reported(
    whole: Whole, checks: Checks, database_url: str
) -> None:
    whole.declare("lost", "external", {}, ping=f"{checks.url}/uuid", stale_timeout="3s")
    apply(database_url, whole.jobs, source="test")
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute("SELECT cronledger.trigger('lost')")
        c.execute("SELECT FROM cronledger.claim_next('default', 'worker')")
    async with whole.replica(ping_allow_private=True):
        await eventually("it is reported", lambda: checks.paths == ["/uuid/fail"])
    assert "worker" in checks.requests[0][2]


async def test_a_replica_reports_that_the_ledger_is_alive(whole: Whole, checks: Checks) -> None:
    async with whole.replica(ping_allow_private=True, ping_url=f"{checks.url}/ledger"):
        await eventually("the ledger is reported", lambda: checks.paths == ["/ledger"])


async def test_jobs_without_a_check_send_nothing(whole: Whole, checks: Checks) -> None:
    def quiet() -> None: ...

    job = whole.job(quiet)
    async with whole.replica(ping_allow_private=True):
        await whole.run(job)
    assert checks.requests == []


# -- sending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "tries"), [(500, 3), (429, 3), (404, 1), (302, 1)])
async def test_a_ping_is_tried_again_if_that_may_help(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, status: int, tries: int
) -> None:
    monkeypatch.setattr(pings, "WAITS", (0.0, 0.0, 0.0))
    checks.status = status
    sender = Pings(allow_private=True)
    with capture_logs() as lines:
        sender.put(Ping(f"{checks.url}/secret-key", "start"))
        await sender.close(10)
    assert len(checks.requests) == tries
    (line,) = lines
    assert (line["event"], line["error"]) == ("ping_failed", f"status {status}")
    assert "secret-key" not in str(line)


async def test_a_check_that_is_unreachable_is_logged_without_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pings, "WAITS", (0.0,))
    sender = Pings(allow_private=True)
    with capture_logs() as lines:
        sender.put(Ping("http://127.0.0.1:1/secret-key"))
        await sender.close(10)
    assert [line["event"] for line in lines] == ["ping_failed"]
    assert "secret-key" not in str(lines)


async def test_an_address_that_cannot_be_requested_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pings, "WAITS", (0.0,))
    url = "http://\u00fc..example/secret-key"  # the empty label cannot be encoded
    Job.model_validate({"name": "a", "handler": "external", "ping": url})
    sender = Pings(allow_private=True)
    with capture_logs() as lines:
        for _ in range(pings.MOST_WAITING + 1):
            sender.put(Ping(url, "start"))
        await sender.close(10)
    events = [line["event"] for line in lines]
    assert events == ["ping_dropped"] + ["ping_failed"] * pings.MOST_WAITING
    assert "secret-key" not in str(lines)


async def test_a_ping_that_waits_for_its_turn_is_not_given_up(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pings, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(pings, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(pings, "WAITS", (0.0,))
    checks.open.clear()
    sender = Pings(allow_private=True)
    with capture_logs() as lines:
        for name in ("hanging", "waiting"):
            sender.put(Ping(f"{checks.url}/{name}"))
        await eventually("the first one is given up", lambda: len(checks.requests) == 2)
        checks.open.set()
        await sender.close(10)
    assert [line["event"] for line in lines] == ["ping_failed"]
    assert checks.paths == ["/hanging", "/waiting"]


async def test_a_failed_ping_does_not_name_another_execution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pings, "WAITS", (0.0,))
    sender = Pings(allow_private=True)
    with capture_logs(processors=[merge_contextvars]) as lines:
        with bound_contextvars(execution_id=7):
            sender.put(Ping("http://127.0.0.1:1/"))
        await sender.close(10)
    (line,) = lines
    assert line["event"] == "ping_failed"
    assert "execution_id" not in line


async def test_a_private_address_needs_permission(checks: Checks) -> None:
    sender = Pings(allow_private=False)
    with capture_logs() as lines:
        sender.put(Ping(checks.url))
        await sender.close(10)
    assert checks.requests == []
    assert "ping_allow_private" in lines[0]["error"]


async def test_pings_of_one_check_keep_their_order_and_are_bounded(checks: Checks) -> None:
    checks.open.clear()
    sender = Pings(allow_private=True)
    with capture_logs() as lines:
        for number in range(pings.MOST_WAITING + 5):
            sender.put(Ping(f"{checks.url}/uuid", str(number)))
        sender.put(Ping(f"{checks.url}/other"))
        await eventually("another check is not delayed", lambda: "/other" in checks.paths)
        checks.open.set()
        await sender.close(30)
    assert [line["event"] for line in lines] == ["ping_dropped"] * 5
    sent = [path for path in checks.paths if path != "/other"]
    assert sent == [f"/uuid/{number}" for number in range(pings.MOST_WAITING)]


# -- declaration -----------------------------------------------------------------------------------


def test_a_bad_url_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        Job.model_validate({"name": "a", "handler": "external", "ping": "hc-ping.com/x"})


def test_a_check_is_part_of_the_definition_and_of_no_view(
    ledger: Ledger, database_url: str
) -> None:
    declared = Job.model_validate(
        {"name": "a", "handler": "external", "ping": "https://hc-ping.com/secret-key"}
    )
    apply(database_url, [declared], source="test")
    apply(database_url, [declared], source="test")
    assert ledger.values("SELECT revision, ping FROM jobs") == [
        (1, "https://hc-ping.com/secret-key")
    ]
    views = ledger.values(
        "SELECT viewname::text FROM pg_views WHERE schemaname = 'cronledger' ORDER BY 1"
    )
    assert len(views) > 20
    for view in views:
        rows = ledger.values(f"SELECT v::text FROM {view} v")
        assert "secret-key" not in str(rows), view


# -- Sentry ----------------------------------------------------------------------------------------


class Transport(sentry_sdk.transport.Transport):
    """Keeps what the SDK would send."""

    def __init__(self) -> None:
        super().__init__()
        self.check_ins: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Any) -> None:
        for item in envelope.items:
            if item.type == "check_in":
                self.check_ins.append(item.payload.json)


@pytest.fixture
def sentry() -> Iterator[Transport]:
    transport = Transport()
    sentry_sdk.init(
        dsn="https://key@sentry.invalid/1", transport=transport, default_integrations=False
    )
    yield transport
    sentry_sdk.get_global_scope().set_client(None)


async def test_an_execution_of_the_schedule_checks_in_with_sentry(
    whole: Whole, sentry: Transport
) -> None:
    def due() -> None: ...

    def manual() -> None: ...

    policies = {"catch_up": "latest", "grace": "1h", "run_timeout": "10m"}
    scheduled = whole.job(due, schedule="* * * * *", **policies)
    other = whole.job(manual, schedule="@every 90s", **policies)
    async with whole.replica():
        await whole.run(other)
        whole.rows(
            "UPDATE cronledger.schedules SET planned_through = planned_through - interval '1 min',"
            " next_due_at = cronledger.db_now() WHERE job_name = %s", scheduled,
        )  # fmt: skip
        await eventually("both check-ins are sent", lambda: len(sentry.check_ins) == 2)
    begun, ended = sentry.check_ins
    assert (begun["monitor_slug"], begun["status"]) == ("due", "in_progress")
    assert (ended["monitor_slug"], ended["status"]) == ("due", "ok")
    assert begun["check_in_id"] == ended["check_in_id"]


def test_a_schedule_that_sentry_does_not_know_is_logged_once(sentry: Transport) -> None:
    job = Job.model_validate({"name": "a", "handler": "external", "schedule": "@every 90s"})
    check_ins = SentryCheckIns()
    with capture_logs() as lines:
        for _ in range(2):
            check_ins.started(job, ScopeKey("a", "global", "global"), "x")
    assert [line["event"] for line in lines] == ["sentry_monitor_unsupported"]
    assert sentry.check_ins == []


def test_without_the_sdk_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sentry_sdk")
    assert not SentryCheckIns().active
    assert "sentry_sdk" not in sys.modules


def test_an_sdk_without_the_function_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentry_sdk", ModuleType("sentry_sdk"))
    assert not SentryCheckIns().active


async def test_an_execution_that_nobody_is_told_of_gets_no_id(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id of an attempt is a SHA-1, which would be a tenth of the cost of an execution."""
    computed: list[str] = []

    def record(namespace: UUID, name: str) -> UUID:
        computed.append(name)
        return uuid5(namespace, name)

    def due() -> None: ...

    monkeypatch.setattr(monitoring, "uuid5", record)
    whole.job(due, schedule="* * * * *", catch_up="latest", grace="1h")
    async with whole.replica():
        whole.rows(
            "UPDATE cronledger.schedules SET planned_through = planned_through - interval '1 min',"
            " next_due_at = cronledger.db_now()"
        )
        await eventually(
            "the execution has ended",
            lambda: whole.rows("SELECT FROM cronledger.executions WHERE status = 'SUCCESS'"),
        )
    assert computed == []


def test_the_start_and_the_end_of_an_execution_are_one_check_in(sentry: Transport) -> None:
    job = Job.model_validate(
        {"name": "Nightly Backup", "handler": "external", "schedule": "30 2 * * *",
         "timezone": "Europe/Berlin", "grace": "90s", "run_timeout": "4h"}
    )  # fmt: skip
    scope = ScopeKey("Nightly Backup", "global", "global")
    check_ins = SentryCheckIns()
    check_ins.started(job, scope, "5a9f4c1e00004000800000000000000a")
    check_ins.ended(job, scope, "5a9f4c1e00004000800000000000000a", ok=False, seconds=1.5)
    begun, ended = sentry.check_ins
    assert begun["monitor_slug"] == ended["monitor_slug"] == slug(job, scope)
    assert begun["monitor_slug"].startswith("nightly-backup-")
    assert (begun["status"], ended["status"], ended["duration"]) == ("in_progress", "error", 1.5)
    assert begun["check_in_id"] == ended["check_in_id"]
    assert begun["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "30 2 * * *"}, "timezone": "Europe/Berlin",
        "checkin_margin": 2, "max_runtime": 240,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("*/5 * * * *", {"type": "crontab", "value": "*/5 * * * *"}),
        ("0 9 * * THU", {"type": "crontab", "value": "0 9 * * THU"}),
        ("@daily", {"type": "crontab", "value": "@daily"}),
        ("@every 15m", {"type": "interval", "value": 15, "unit": "minute"}),
        ("@every 2h", {"type": "interval", "value": 2, "unit": "hour"}),
        ("@every 90s", None), ("0 30 9 * * 1-5", None), ("H 2 * * *", None), ("0 0 L * *", None),
        (None, None),
    ],
)  # fmt: skip
def test_sentry_gets_the_schedules_that_it_knows(schedule: str | None, expected: Any) -> None:
    job = Job.model_validate({"name": "a", "handler": "external", "schedule": schedule})
    found = monitor(job)
    assert (None if found is None else found["schedule"]) == expected


def test_a_scope_has_a_monitor_of_its_own() -> None:
    job = Job.model_validate({"name": "sync", "handler": "external"})
    assert slug(job, ScopeKey("sync", "global", "global")) == "sync"
    scopes = ["ACME Inc.", "ACME-Inc", "acme.inc", "acme-inc", "é", "ü", "x" * 99, "x" * 98]
    slugs = [slug(job, ScopeKey("sync", "tenant", scope)) for scope in scopes]
    assert len(set(slugs)) == len(scopes)
    assert all(re.fullmatch("[a-z0-9_-]{1,50}", found) for found in slugs)
    assert slugs[0].startswith("sync-acme-inc-")


def test_jobs_with_similar_names_have_monitors_of_their_own() -> None:
    def of(name: str, kind: str = "global", scope: str = "global") -> str:
        job = Job.model_validate({"name": name, "handler": "external"})
        return slug(job, ScopeKey(name, kind, scope))

    found = [of("sync.acme"), of("sync-acme"), of("Sync.Acme"), of("sync", "tenant", "acme")]
    assert len(set(found)) == 4
    assert not of("123").isdecimal()


def test_the_margin_of_a_monitor_contains_the_delay_of_the_start() -> None:
    job = Job.model_validate(
        {"name": "a", "handler": "external", "schedule": "@daily", "grace": "90s",
         "schedule_delay": "10m", "jitter": "5m"}
    )  # fmt: skip
    assert monitor(job)["checkin_margin"] == 17


def test_sentry_gets_no_schedule_that_it_would_read_differently() -> None:
    job = {"name": "a", "handler": "external", "schedule": "0 9 1 * MON"}
    assert monitor(Job.model_validate(job)) is not None
    assert monitor(Job.model_validate(job | {"day_or": False})) is None
    assert monitor(Job.model_validate(job | {"schedule": "0 9 1 * *", "day_or": False})) is not None
