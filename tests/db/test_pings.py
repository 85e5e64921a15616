"""Pings of Healthchecks and check-ins of Sentry: what is reported of an execution, and when."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, timedelta
from types import ModuleType
from typing import Any

import psycopg
import pytest
import sentry_sdk
from aiohttp import web
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.testing import capture_logs

from cronledger.declaring.app import Context, Retry
from cronledger.engine.monitoring import ping_requests, pings
from cronledger.engine.monitoring.ping import Ping
from cronledger.engine.monitoring.pings import Pings
from cronledger.engine.monitoring.sentry import SentryCheckIns, monitor, slug
from cronledger.rules.model import Job, ScopeKey
from cronledger.sources.apply import apply
from tests.db.support.engine import Ledger
from tests.db.support.sites import serving
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually


def declared(**policies: Any) -> Job:
    return Job.model_validate({"name": "a", "handler": "external", **policies})


class Checks:
    """A server with checks, which keeps the requests that it receives. While held, it hangs.

    `hanging`: the path that hangs for as long as the server is there.
    """

    def __init__(self) -> None:
        self.hanging = ""
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.status = 200
        self.open = asyncio.Event()
        self.open.set()
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, dict(request.query), await request.text()))
        if request.path == self.hanging:
            await asyncio.sleep(600)
        await self.open.wait()
        return web.Response(status=self.status)

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.requests]


@pytest.fixture
async def checks() -> AsyncIterator[Checks]:
    made = Checks()
    async with serving(made.handle) as made.url:
        yield made
        made.open.set()


@pytest.mark.long
async def test_each_attempt_reports_its_start_and_its_end(
    whole: Whole, checks: Checks, database_url: str
) -> None:
    def flaky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Retry("0s", "no disk")
        return "done"

    def cancelled() -> None:
        with psycopg.connect(database_url) as c:  # the replica is not notified
            c.execute(
                "UPDATE cronledger.executions SET cancel_requested_at = cronledger.db_now()"
                " WHERE status = 'RUNNING'"
            )
        raise ValueError("no disk")

    whole.job(flaky, ping=f"{checks.url}/uuid?create=1", max_attempts=2)
    whole.job(cancelled, ping=f"{checks.url}/cancelled")
    backup = ["sh", "-c", "echo no space left; exit 3"]
    whole.declare("backup", "command", {"command": backup}, ping=f"{checks.url}/backup")
    whole.declare("killed", "command", {"command": "kill -9 $$"}, ping=f"{checks.url}/killed")
    reports = {
        "flaky": ["/uuid/start", "/uuid/log", "/uuid/start", "/uuid"],
        "backup": ["/backup/start", "/backup/3"],
        "killed": ["/killed/start", "/killed/fail"],
        "cancelled": ["/cancelled/start", "/cancelled/log"],  # the ledger writes CANCELLED
    }
    expected: list[str] = []

    def all_received() -> bool:
        return len(checks.paths) == len(expected)

    async with whole.replica(ping_allow_private=True):
        for job, paths in reports.items():
            await whole.run(job)
            expected += paths
            await eventually("its pings are received", all_received)
    assert checks.paths == expected
    runs = [query["rid"] for _, query, _ in checks.requests[:4]]
    assert runs[0] == runs[1] != runs[2] == runs[3]
    assert {query["create"] for _, query, _ in checks.requests[:4]} == {"1"}
    texts = {path: text for path, _, text in checks.requests}
    assert "no disk" in texts["/uuid/log"]
    assert "no space left" in texts["/backup/3"]
    assert texts["/cancelled/log"].startswith("CANCELLED\n")


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
            await eventually("the first one is received", lambda: checks.paths)
    assert [row["status"] for row in ended] == ["SUCCESS"] * 3
    assert checks.paths == ["/uuid/start"]
    assert [line["event"] for line in lines].count("ping_dropped") == 6


@pytest.mark.long
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


async def test_a_replica_reports_the_ledger_and_no_job_without_a_check(
    whole: Whole, checks: Checks
) -> None:
    def quiet() -> None: ...

    whole.job(quiet, schedule="* * * * *", catch_up="latest", grace="1h")
    ended = "SELECT FROM cronledger.executions WHERE status = 'SUCCESS'"
    async with whole.replica(ping_allow_private=True, ping_url=f"{checks.url}/ledger"):
        whole.rows(
            "UPDATE cronledger.schedules SET planned_through = planned_through - interval '1 min',"
            " next_due_at = cronledger.db_now()"
        )
        await eventually("the execution has ended", lambda: whole.rows(ended))
        await eventually("the ledger is reported", lambda: checks.requests)
    assert set(checks.paths) == {"/ledger"}


# -- sending ---------------------------------------------------------------------------------------


async def sent(*urls: str, allow_private: bool = True) -> list[dict[str, Any]]:
    """Send a ping to each address. Return what was logged about that."""
    sender = Pings(allow_private=allow_private)
    with capture_logs(processors=[merge_contextvars]) as lines:
        with bound_contextvars(execution_id=7):
            for url in urls:
                sender.put(Ping(url, "start"))
        await sender.close(10)
    return [dict(line) for line in lines]


async def test_a_ping_is_tried_again_if_that_may_help_and_logged_without_its_key(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ping_requests, "WAITS", (0.0, 0.0, 0.0))
    for status, tries in ((500, 3), (429, 3), (404, 1), (302, 1)):
        checks.status = status
        checks.requests.clear()
        (line,) = await sent(f"{checks.url}/secret-key")
        assert len(checks.requests) == tries
        assert (line["event"], line["error"]) == ("ping_failed", f"status {status}")
        assert "secret-key" not in str(line)
    checks.requests.clear()
    lines = await sent("http://127.0.0.1:1/secret-key")
    lines += await sent(f"{checks.url}/secret-key", allow_private=False)
    assert [line["event"] for line in lines] == ["ping_failed"] * 2
    assert "secret-key" not in str(lines)
    assert "execution_id" not in str(lines)  # it would be that of another execution
    assert "ping_allow_private" in lines[1]["error"]
    assert checks.requests == []


async def test_an_address_that_cannot_be_requested_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ping_requests, "WAITS", (0.0,))
    url = "http://\u00fc..example/secret-key"  # the empty label cannot be encoded
    declared(ping=url)
    lines = await sent(*[url] * (pings.MOST_WAITING + 1))
    events = [line["event"] for line in lines]
    assert events == ["ping_dropped"] + ["ping_failed"] * pings.MOST_WAITING
    assert "secret-key" not in str(lines)


@pytest.mark.long
async def test_a_ping_that_waits_for_its_turn_is_not_given_up(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ping_requests, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(ping_requests, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(ping_requests, "WAITS", (0.0,))
    checks.hanging = "/hanging"
    sender = Pings(allow_private=True)
    with capture_logs() as lines:
        for name in ("hanging", "waiting"):
            sender.put(Ping(f"{checks.url}/{name}"))
        # The server may read the first one later than this, or never.
        await eventually("the second one is received", lambda: "/waiting" in checks.paths)
        await sender.close(10)
    assert [line["event"] for line in lines] == ["ping_failed"]


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


def test_a_check_is_part_of_the_definition_and_of_no_view(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        declared(ping="hc-ping.com/x")
    job = declared(ping="https://hc-ping.com/secret-key")
    for _ in range(2):
        apply(ledger.url, [job], source="test")
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


@pytest.mark.long
async def test_an_execution_of_the_schedule_checks_in_with_sentry(
    whole: Whole, sentry: Transport
) -> None:
    def due() -> None: ...

    def manual() -> None: ...

    policies = {"catch_up": "latest", "grace": "1h", "run_timeout": "10m"}
    # It was due half an hour ago, and is due again in half an hour.
    ago = whole.one("SELECT cronledger.db_now()").astimezone(UTC) - timedelta(minutes=30)
    scheduled = whole.job(due, schedule=f"{ago.minute} * * * *", **policies)
    other = whole.job(manual, schedule="@every 90s", **policies)
    async with whole.replica():
        await whole.run(other)
        whole.rows(
            "UPDATE cronledger.schedules SET planned_through = planned_through - interval '45 min',"
            " next_due_at = cronledger.db_now() WHERE job_name = %s", scheduled,
        )  # fmt: skip
        await eventually("both check-ins are sent", lambda: len(sentry.check_ins) == 2)
    begun, ended = sentry.check_ins
    assert (begun["monitor_slug"], begun["status"]) == ("due", "in_progress")
    assert (ended["monitor_slug"], ended["status"]) == ("due", "ok")
    assert begun["check_in_id"] == ended["check_in_id"]


def test_without_the_sdk_or_its_function_nothing_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sentry_sdk")
    assert not SentryCheckIns().active
    assert "sentry_sdk" not in sys.modules
    monkeypatch.setitem(sys.modules, "sentry_sdk", ModuleType("sentry_sdk"))
    assert not SentryCheckIns().active


def test_the_start_and_the_end_of_an_execution_are_one_check_in(sentry: Transport) -> None:
    job = declared(name="Nightly Backup", schedule="30 2 * * *", timezone="Europe/Berlin",
                   grace="90s", run_timeout="4h")  # fmt: skip
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


def test_sentry_gets_the_schedules_that_it_knows() -> None:
    schedules: dict[str | None, tuple[object, ...] | None] = {
        "0 9 1 * MON": ("crontab", "0 9 1 * MON"), "@daily": ("crontab", "@daily"),
        "@every 15m": ("interval", 15, "minute"), "@every 2h": ("interval", 2, "hour"),
        "@every 90s": None, "0 30 9 * * 1-5": None, "H 2 * * *": None, "0 0 L * *": None,
    }  # fmt: skip
    for schedule, expected in schedules.items():
        found = monitor(declared(schedule=schedule))
        assert (None if found is None else tuple(found["schedule"].values())) == expected
    # Sentry would read the two fields of days differently.
    assert monitor(declared(schedule="0 9 1 * MON", day_or=False)) is None
    assert monitor(declared(schedule="0 9 1 * *", day_or=False)) is not None
    # The margin contains the delay of the start.
    delayed = declared(schedule="@daily", grace="90s", schedule_delay="10m", jitter="5m")
    assert monitor(delayed)["checkin_margin"] == 17


def test_scopes_and_jobs_with_similar_names_have_monitors_of_their_own() -> None:
    def of(name: str, kind: str = "global", scope: str = "global") -> str:
        return slug(declared(name=name), ScopeKey(name, kind, scope))

    assert of("sync") == "sync"
    scopes = ["ACME Inc.", "ACME-Inc", "acme.inc", "acme-inc", "é", "ü", "x" * 99, "x" * 98]
    slugs = [of("sync", "tenant", scope) for scope in scopes]
    assert slugs[0].startswith("sync-acme-inc-")
    slugs += [of("sync.acme"), of("sync-acme"), of("Sync.Acme"), of("sync", "tenant", "acme")]
    assert len(set(slugs)) == len(scopes) + 4
    assert all(re.fullmatch("[a-z0-9_-]{1,50}", found) for found in slugs)
    assert not of("123").isdecimal()
