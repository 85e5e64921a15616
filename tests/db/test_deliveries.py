"""Deliveries of alerts: what each kind of channel receives, and how a delivery ends."""

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from cronledger import channels
from cronledger.channels import Channel, FromEnvironment
from cronledger.engine.alerting import deliveries as delivering
from cronledger.engine.alerting.deliveries import Deliveries
from cronledger.engine.commands.client import Supervisor
from cronledger.rules.channels import as_job
from cronledger.sources.apply import apply
from tests.db.support.engine import Ledger, Runner, runners
from tests.waiting import PATIENCE

SECRET = "s3cr3t-value-of-the-test"
ALERT: dict[str, Any] = {
    "id": 17, "event": "failed", "kind": "opened", "at": "2030-01-01T06:00:03+00:00",
    "since": "2030-01-01T06:00:03+00:00", "job": "report", "scope_kind": "global",
    "scope": "global", "owner": "data", "labels": {}, "runner": None, "execution_id": 4711,
    "plan_time": "2030-01-01T06:00:00+00:00", "count": 1, "summary": "report failed: no disk",
    "details": {"status": "FAILED", "error_code": "exit_code", "error_msg": "no disk",
                "output": "writing …\nno space left", "attempt": 1, "duration_ms": 1200},
}  # fmt: skip
RECEIVED: list[Any] = []
"""The messages that the functions of this module have received."""

Receiver = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """A receiver of webhooks, which keeps each request and returns `status`."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((dict(request.headers), await request.read()))
        headers = {"Location": f"{self.url}/elsewhere"} if self.status == 302 else {}
        return web.Response(status=self.status, headers=headers, text=f"echo {SECRET}")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def one(ledger: Ledger, database_url: str) -> AsyncIterator[Runner]:
    async with runners(database_url, {}) as (made,):
        yield made


@pytest.fixture
async def deliveries(one: Runner, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Deliveries]:
    monkeypatch.setenv("TEST_SECRET", SECRET)
    monkeypatch.setattr(delivering, "DELIVERY_SECONDS", PATIENCE)  # a library is imported in it
    supervisor = Supervisor()
    made = Deliveries(one.pool, one.statements, one.clock, supervisor, runner=one.name, slots=2)
    made.note(watching=True)
    yield made
    await made.close(0)
    await supervisor.close()


def declare(ledger: Ledger, channel: Channel, **policies: Any) -> None:
    """Apply the channel `ops`, as a source does."""
    apply(ledger.url, [as_job("ops", channel).model_copy(update=policies)], source="test")


def enqueue(ledger: Ledger, *alerts: dict[str, Any]) -> int:
    """Create a delivery with these alerts."""
    return create(
        ledger, {"channel": "ops", "ledger": "a-ledger", "alerts": list(alerts) or [ALERT]}
    )


def create(ledger: Ledger, payload: object) -> int:
    """Create a delivery with this payload, as the step of the alerts does."""
    made: int = ledger.one(
        "SELECT cronledger_internal.create_message(j, 'global', 'global', NULL, %s, NULL, 'test')"
        " FROM jobs j WHERE j.name = 'alerts.ops'", Jsonb(payload),
    )  # fmt: skip
    return made


async def delivered(ledger: Ledger, deliveries: Deliveries, channel: Channel) -> tuple[Any, ...]:
    """Deliver one message; return the status, code and message of its execution."""
    declare(ledger, channel)
    made = enqueue(ledger)
    await deliveries.run_all()
    found: tuple[Any, ...] = ledger.one(
        "SELECT status, error_code, error_msg FROM executions WHERE id = %s", made
    )
    return found


SUCCESS = ("SUCCESS", None, None)


def key(prefix: str = "") -> FromEnvironment:
    return FromEnvironment(env="TEST_SECRET", prefix=prefix)


# -- webhooks --------------------------------------------------------------------------------------


async def test_a_webhook_receives_the_alerts_with_a_signature(
    ledger: Ledger, deliveries: Deliveries, site: Site
) -> None:
    channel = channels.Webhook(
        url=f"{site.url}/hook", allow_private=True, secret=key(),
        headers={"X-Team": "data", "Authorization": key("Bearer ")},
    )  # fmt: skip
    assert await delivered(ledger, deliveries, channel) == SUCCESS
    ((headers, body),) = site.requests
    message = json.loads(body)
    assert (message["channel"], message["alerts"]) == ("ops", [ALERT])
    assert (headers["X-Team"], headers["Authorization"]) == ("data", f"Bearer {SECRET}")
    assert headers["Cronledger-Delivery"] == str(ledger.one("SELECT id FROM executions"))
    parts = dict(part.split("=") for part in headers["Cronledger-Signature"].split(","))
    signed = parts["t"].encode() + b"." + body
    assert parts["v1"] == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert abs(int(parts["t"]) - ledger.now().timestamp()) < 60


@pytest.mark.parametrize(("status", "reason"), [(500, "500"), (302, "302")])
async def test_a_receiver_that_does_not_accept_is_tried_again(
    ledger: Ledger, deliveries: Deliveries, site: Site, status: int, reason: str
) -> None:
    ledger.stop_clock(ledger.now())  # nothing is tried again before its time
    site.status = status
    channel = channels.Webhook(url=site.url, allow_private=True)
    ended = await delivered(ledger, deliveries, channel)
    assert (ended[:2], len(site.requests)) == (("FAILED", "delivery_failed"), 1)
    assert reason in ended[2]
    assert SECRET not in ended[2]
    wait = ledger.one("SELECT next_attempt_at - finished_at FROM executions")
    assert 5 <= wait.total_seconds() <= 15
    site.status = 204
    ledger.pass_time(wait)
    await deliveries.run_all()
    assert ledger.one("SELECT status, attempt FROM executions") == ("SUCCESS", 2)
    first, second = (json.loads(body)["alerts"] for _, body in site.requests)
    assert first == second


async def test_a_private_address_is_refused_unless_the_channel_permits_it(
    ledger: Ledger, deliveries: Deliveries, site: Site
) -> None:
    ended = await delivered(ledger, deliveries, channels.Webhook(url=site.url))
    assert (ended[0], site.requests) == ("FAILED", [])
    assert "allow_private" in ended[2]


async def test_slack_shows_a_text_as_it_is_and_notifies_nobody_by_it(
    ledger: Ledger, deliveries: Deliveries, site: Site
) -> None:
    declare(ledger, channels.Slack(url=site.url, allow_private=True))
    enqueue(ledger, {**ALERT, "summary": "report failed: <!channel> a & b"})
    await deliveries.run_all()
    ((_, body),) = site.requests
    text = json.loads(body)["text"]
    assert text.startswith("*Cron &lt;report&gt; failed*\n")
    assert "report failed: &lt;!channel&gt; a &amp; b" in text
    assert "no space left" in text


# -- mail ------------------------------------------------------------------------------------------


class Mailbox:
    """Keeps the mails that an SMTP server has accepted."""

    def __init__(self) -> None:
        self.mails: list[tuple[Envelope, EmailMessage]] = []
        self.logins: list[str] = []
        self.servers: list[asyncio.Server] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        mail = message_from_bytes(content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append((envelope, mail))
        return "250 OK"

    def login(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str,
              data: LoginPassword) -> AuthResult:  # fmt: skip
        self.logins.append(data.login.decode())
        return AuthResult(success=data.password.decode() == SECRET)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of `key.pem` and `cert.pem` of localhost."""
    directory = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=directory, check=True, capture_output=True,
    )  # fmt: skip
    return directory


@pytest.fixture
def tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return the context of a server, whose certificate of localhost this process trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


async def listen(mailbox: Mailbox, context: ssl.SSLContext | None = None, **options: Any) -> int:
    """Start an SMTP server in this event loop, and return its port."""
    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(mailbox, authenticator=mailbox.login, **options), "127.0.0.1", 0, ssl=context
    )
    mailbox.servers.append(server)
    port: int = server.sockets[0].getsockname()[1]
    return port


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    made = Mailbox()
    yield made
    for server in made.servers:
        server.close()


async def test_a_mail_has_a_subject_and_the_output(
    ledger: Ledger, deliveries: Deliveries, mailbox: Mailbox
) -> None:
    channel = channels.Email(
        to=("ops@example.org", "night@example.org"), sender="cron@example.org",
        host="127.0.0.1", port=await listen(mailbox),
    )  # fmt: skip
    assert await delivered(ledger, deliveries, channel) == SUCCESS
    ((envelope, mail),) = mailbox.mails
    assert envelope.rcpt_tos == ["ops@example.org", "night@example.org"]
    assert (envelope.mail_from, mail["From"]) == ("cron@example.org", "cron@example.org")
    assert mail["Subject"] == "Cron <report> failed"
    assert str(ledger.one("SELECT id FROM executions")) in mail["Message-ID"]
    body = mail.get_content()
    assert "report failed: no disk" in body
    assert "no space left" in body


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_a_mail_is_sent_encrypted_with_a_login(
    ledger: Ledger, deliveries: Deliveries, mailbox: Mailbox, tls: ssl.SSLContext, security: Any
) -> None:
    port = await (
        listen(mailbox, tls, auth_require_tls=False) if security == "tls"
        else listen(mailbox, tls_context=tls, require_starttls=True)
    )  # fmt: skip
    channel = channels.Email(
        to=("ops@example.org",), sender="cron@example.org", host="localhost", port=port,
        security=security, user="cron", password=key(),
    )  # fmt: skip
    assert await delivered(ledger, deliveries, channel) == SUCCESS
    assert (len(mailbox.mails), mailbox.logins) == (1, ["cron"])


async def test_line_breaks_of_a_job_do_not_reach_the_header_of_a_mail(
    ledger: Ledger, deliveries: Deliveries, mailbox: Mailbox
) -> None:
    channel = channels.Email(
        to=("ops@example.org",),
        sender="cron@example.org",
        host="127.0.0.1",
        port=await listen(mailbox),
    )
    declare(ledger, channel)
    enqueue(ledger, ALERT | {"scope": "a\r\nBcc: victim@example.org"})
    await deliveries.run_all()
    ((envelope, mail),) = mailbox.mails
    assert envelope.rcpt_tos == ["ops@example.org"]
    assert mail["Bcc"] is None


# -- commands, functions, Apprise ------------------------------------------------------------------


async def test_a_command_reads_the_alerts_from_a_file(
    ledger: Ledger, deliveries: Deliveries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER_KEY", "k3y")
    copy = 'cp "$CRONLEDGER_ALERTS_FILE" copy.json; echo "$CRONLEDGER_ALERT_SUBJECT" > subject'
    copy += '; echo "$A$KEY" > variables'
    env = {"A": "b", "KEY": channels.FromEnvironment(env="PAGER_KEY")}
    channel = channels.Command(command=copy, cwd=str(tmp_path), env=env)
    assert await delivered(ledger, deliveries, channel) == SUCCESS
    assert json.loads((tmp_path / "copy.json").read_text("utf-8"))["alerts"] == [ALERT]
    assert (tmp_path / "subject").read_text("utf-8") == "Cron <report> failed\n"
    assert (tmp_path / "variables").read_text("utf-8") == "bk3y\n"


async def test_the_output_of_a_failed_command_is_its_error(
    ledger: Ledger, deliveries: Deliveries
) -> None:
    channel = channels.Command(command=["sh", "-c", "echo no route to pager; exit 3"])
    status, code, message = await delivered(ledger, deliveries, channel)
    assert (status, code) == ("FAILED", "delivery_failed")
    assert "exited with status 3" in message
    assert "no route to pager" in message


def receive(message: Any) -> None:
    RECEIVED.append(message)


async def receive_later(message: Any) -> None:
    RECEIVED.append(message)


def refuse(message: Any) -> None:
    raise ValueError("the pager is off")


async def test_a_function_receives_the_message(ledger: Ledger, deliveries: Deliveries) -> None:
    RECEIVED.clear()
    for function in ("receive", "receive_later"):
        channel = channels.Function(python=f"{__name__}:{function}")
        assert await delivered(ledger, deliveries, channel) == SUCCESS
    assert [message["alerts"] for message in RECEIVED] == [[ALERT], [ALERT]]


async def test_the_error_of_a_function_is_that_of_the_delivery(
    ledger: Ledger, deliveries: Deliveries
) -> None:
    channel = channels.Function(python=f"{__name__}:refuse")
    assert await delivered(ledger, deliveries, channel) == (
        "FAILED", "delivery_failed", "ValueError: the pager is off",
    )  # fmt: skip


async def test_apprise_notifies_its_urls(
    ledger: Ledger, deliveries: Deliveries, site: Site
) -> None:
    channel = channels.Apprise(urls=(site.url.replace("http://", "json://"),))
    assert await delivered(ledger, deliveries, channel) == SUCCESS
    ((_, body),) = site.requests
    message = json.loads(body)
    assert message["title"] == "Cron <report> failed"
    assert "no space left" in message["message"]


async def test_a_missing_extra_is_named(
    ledger: Ledger, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    ended = await delivered(ledger, deliveries, channels.Apprise(urls=("json://localhost",)))
    assert "pip install 'cronledger[apprise]'" in ended[2]


# -- failures --------------------------------------------------------------------------------------


async def test_a_secret_that_is_not_set_is_named(ledger: Ledger, deliveries: Deliveries) -> None:
    channel = channels.Slack(url=FromEnvironment(env="NOT_SET_HERE"))
    ended = await delivered(ledger, deliveries, channel)
    assert (ended[0], "NOT_SET_HERE is not set" in ended[2]) == ("FAILED", True)


async def test_secrets_are_in_no_log_line_and_no_row(
    ledger: Ledger, deliveries: Deliveries, site: Site
) -> None:
    site.status = 500
    tried: list[Channel] = [
        channels.Webhook(url=key(f"{site.url}/"), allow_private=True, secret=key()),
        channels.Webhook(url=key("http://localhost:1/"), allow_private=True),
        channels.Function(python=f"{__name__}:refuse"),
    ]
    with capture_logs() as lines:
        for channel in tried:
            declare(ledger, channel, max_attempts=1)  # later ones do not try it again
            enqueue(ledger)
            await deliveries.run_all()
    assert [line["event"] for line in lines].count("delivery_failed") == 3
    assert SECRET not in str(lines)
    rows = ledger.values("SELECT e::text || j::text FROM executions e, jobs j")
    assert len(rows) == 3
    assert SECRET not in str(rows)


async def test_apprise_writes_no_url_to_the_log(
    ledger: Ledger, deliveries: Deliveries, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "aiohttp.access")  # of the receiver
    caplog.set_level(logging.DEBUG)
    for prefix in ("", "nonsense://", "slack://x/", "json://{}/"):
        url = key(prefix.format(site.url.removeprefix("http://")))
        status, *_ = await delivered(ledger, deliveries, channels.Apprise(urls=(url,)))
        assert (status == "SUCCESS") == bool(site.requests) == prefix.startswith("json")
        assert SECRET not in caplog.text


async def test_a_channel_that_nobody_can_use_fails_at_once(
    ledger: Ledger, deliveries: Deliveries
) -> None:
    declare(ledger, channels.Function(python=f"{__name__}:receive"))
    ledger.values("ALTER TABLE jobs DISABLE TRIGGER check_values")
    ledger.values(
        'UPDATE jobs SET target = \'{"channel": {"kind": "pigeon"}}\' WHERE name = \'alerts.ops\''
    )
    enqueue(ledger)
    await deliveries.run_all()
    status, code, again = ledger.one("SELECT status, error_code, next_attempt_at FROM executions")
    assert (status, code, again) == ("FAILED", "channel_invalid", None)


async def test_a_delivery_without_alerts_names_what_is_wrong(
    ledger: Ledger, deliveries: Deliveries
) -> None:
    RECEIVED.clear()
    declare(ledger, channels.Function(python=f"{__name__}:receive"))
    payloads: list[Any] = [None, {}, {"alerts": {}}, {"alerts": []}, {"alerts": ["a"]}]
    for payload in payloads:
        create(ledger, payload)
    await deliveries.run_all()
    rows = ledger.values("SELECT status, error_code, error_msg, next_attempt_at FROM executions")
    assert len(rows) == len(payloads)
    for status, code, text, again in rows:
        assert (status, code, again) == ("FAILED", "payload_invalid", None)
        assert "cronledger channels test ops" in text
    assert RECEIVED == []


async def test_a_lost_lease_writes_nothing(
    ledger: Ledger, deliveries: Deliveries, one: Runner
) -> None:
    RECEIVED.clear()
    declare(ledger, channels.Function(python=f"{__name__}:steal"))
    STOLEN[:] = [ledger.url]
    made = enqueue(ledger)
    await deliveries.run_all()
    assert ledger.one("SELECT status, runner_id FROM executions WHERE id = %s", made) == (
        "RUNNING", "thief",
    )  # fmt: skip


STOLEN: list[str] = []


def steal(message: Any) -> None:
    with psycopg.connect(STOLEN[0], autocommit=True) as c:
        c.execute(
            "UPDATE cronledger.executions SET lease_token = gen_random_uuid(), runner_id = 'thief'"
        )


async def test_nothing_is_claimed_without_a_slot(ledger: Ledger, one: Runner) -> None:
    declare(ledger, channels.Function(python=f"{__name__}:receive"))
    made = enqueue(ledger)
    none = Deliveries(one.pool, one.statements, one.clock, Supervisor(), runner="r", slots=0)
    none.note(watching=True)
    await none.run_all()
    assert await none.step() > 0
    assert ledger.one("SELECT status FROM executions WHERE id = %s", made) == "PENDING"


async def test_a_notification_is_not_lost_to_a_check_in_that_began_before_it(
    ledger: Ledger, deliveries: Deliveries
) -> None:
    deliveries.note(watching=False)
    declare(ledger, channels.Function(python=f"{__name__}:receive"))
    made = enqueue(ledger)
    deliveries.request()
    deliveries.note(watching=False)  # the check-in read the ledger before there was a channel
    await deliveries.step()
    assert ledger.one("SELECT status FROM executions WHERE id = %s", made) == "RUNNING"


# -- the proof: 10,000 edges, and a receiver that is down half of the time -------------------------

JOBS, FLIPS, ROUND = 100, 100, 5


def flip(ledger: Ledger, first: int) -> None:
    """End the next `ROUND` executions of every job: FAILED and SUCCESS alternate."""
    ledger.values(
        "INSERT INTO executions (job_name, scope_kind, scope_id, plan_time, status, trigger,"
        " revision, queue, due_at, attempt, max_attempts, lease_token, started_at, finished_at,"
        " duration_ms, error_code, error_msg, changed_xact)"
        " SELECT name, 'global', 'global', at, CASE n %% 2 WHEN 0 THEN 'FAILED' ELSE 'SUCCESS' END,"
        " 'schedule', 1, 'default', at, 1, 1, gen_random_uuid(), at, at, 1,"
        " CASE n %% 2 WHEN 0 THEN 'failed' END, CASE n %% 2 WHEN 0 THEN 'no disk' END,"
        " pg_current_xact_id()"
        " FROM jobs, generate_series(%s::int, %s::int) n,"
        " LATERAL (SELECT db_now() + n * interval '1 ms' AS at) t WHERE name LIKE 'job%%'",
        first, first + ROUND - 1,
    )  # fmt: skip


@pytest.mark.slow
async def test_each_of_10000_edges_arrives_although_the_receiver_is_down_half_the_time(
    ledger: Ledger, deliveries: Deliveries, site: Site
) -> None:
    declare(ledger, channels.Webhook(url=site.url, allow_private=True))
    notify = Jsonb([{"channel": "ops"}])
    for number in range(JOBS):
        ledger.job(f"job{number}", handler="external", notify=notify)
    accepted: list[dict[str, Any]] = []
    for number, first in enumerate(range(0, FLIPS, ROUND)):
        flip(ledger, first)
        ledger.travel(by=timedelta(seconds=61))
        while ledger.one("SELECT cronledger_internal.raise_alerts(1000)"):
            pass
        site.status = 503 if number % 2 else 200
        await deliveries.run_all()
        accepted += taken(site)
    assert ledger.one("SELECT count(*) FROM execution_status WHERE attempt > 1") > 0
    site.status = 200
    while ledger.one("SELECT bool_or(status <> 'SUCCESS') FROM executions WHERE queue = 'alerts'"):
        ledger.travel(by=timedelta(hours=1))
        await deliveries.run_all()
        accepted += taken(site)
    raised = ledger.values("SELECT id, job_name, kind FROM alerts ORDER BY id")
    assert len(raised) == JOBS * FLIPS
    assert {alert["id"] for alert in accepted} == {id_ for id_, _, _ in raised}
    kinds: dict[str, list[str]] = {}
    for _, job, kind in raised:
        kinds.setdefault(job, []).append(kind)
    assert list(kinds.values()) == [["opened", "closed"] * (FLIPS // 2)] * JOBS
    assert ledger.one("SELECT count(DISTINCT delivery_id) FROM alerts") < 100


def taken(site: Site) -> list[dict[str, Any]]:
    """Return the alerts that the receiver has accepted since the last call."""
    requests, site.requests = site.requests, []
    if site.status != 200:
        return []
    return [alert for _, body in requests for alert in json.loads(body)["alerts"]]
