"""Deliveries of alerts: what each kind of channel receives, and how a delivery ends."""

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from cronledger import channels
from cronledger.channels import Channel, FromEnvironment
from cronledger.engine.alerting import deliveries as delivering
from cronledger.engine.alerting.deliveries import Deliveries
from cronledger.engine.commands.client import Supervisor
from cronledger.ledger.connections import StepConnection
from cronledger.sources.apply import apply
from tests.db.support.engine import Ledger, Runner
from tests.db.support.sites import Site
from tests.waiting import PATIENCE

SECRET = "s3cr3t-value-of-the-test"
KEY = "a key with spaces and ü"
ALERT: dict[str, Any] = {
    "id": 17, "event": "failed", "kind": "opened", "at": "2030-01-01T06:00:03+00:00",
    "since": "2030-01-01T06:00:03+00:00", "job": "report", "scope_kind": "global",
    "scope": "global", "owner": "data", "labels": {}, "runner": None, "runbook": None,
    "execution_id": 4711,
    "plan_time": "2030-01-01T06:00:00+00:00", "count": 1, "summary": "report failed: no disk",
    "details": {"status": "FAILED", "error_code": "exit_code", "error_msg": "no disk",
                "output": "writing …\nno space left", "attempt": 1, "duration_ms": 1200},
}  # fmt: skip
RECEIVED: list[Any] = []
"""The messages that the functions of this module have received."""


class Bench:
    """The deliveries of a replica, and the ledger that has the channel `ops`."""

    def __init__(self, ledger: Ledger, deliveries: Deliveries) -> None:
        self.ledger, self.deliveries = ledger, deliveries

    def declare(self, channel: Channel) -> None:
        """Apply the channel, as a source does."""
        apply(self.ledger.url, [], channels={"ops": channel}, source="test")

    def enqueue(self, alert: dict[str, Any] = ALERT) -> int:
        """Create a delivery with this alert, as the step of the alerts does."""
        made: int = self.ledger.one("INSERT INTO deliveries (channel) VALUES ('ops') RETURNING id")
        self.ledger.values("DELETE FROM raised_alerts WHERE id = %s", alert["id"])
        self.ledger.values(
            "INSERT INTO raised_alerts"
            " SELECT * FROM jsonb_populate_record(NULL::raised_alerts, %s)",
            Jsonb({
                **alert, "channel": "ops", "delivery_id": made, "job_name": alert["job"],
                "scope_id": alert["scope"], "runner_id": alert["runner"],
            }),
        )  # fmt: skip
        return made

    async def deliver(self, channel: Channel, alert: dict[str, Any] = ALERT) -> tuple[Any, ...]:
        """Deliver one message; return the status, code and message of its delivery."""
        self.declare(channel)
        made = self.enqueue(alert)
        await self.deliveries.run_all()
        found: tuple[Any, ...] = self.ledger.one(
            "SELECT status, error_code, error_msg FROM deliveries WHERE id = %s", made
        )
        return found


@pytest.fixture
async def bench(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    RECEIVED.clear()
    monkeypatch.setenv("TEST_SECRET", SECRET)
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setattr(delivering, "DELIVERY_SECONDS", PATIENCE)  # a library is imported in it
    supervisor = Supervisor()
    made = Deliveries(one.pool, one.statements, supervisor, runner=one.name, slots=2)
    made.note(watching=True)
    yield Bench(ledger, made)
    await made.close(0)
    await supervisor.close()


def returns(site: Site, status: int = 200, **headers: str) -> None:
    for path in ("/", f"/{SECRET}"):
        site.answer(path, status, f"echo {SECRET}", **headers)


def messages(site: Site) -> list[Any]:
    """Return what the site has received."""
    return [json.loads(body) for *_, body in site.asked]


SUCCESS = ("SUCCESS", None, None)


def key(prefix: str = "") -> FromEnvironment:
    return FromEnvironment(env="TEST_SECRET", prefix=prefix)


# -- webhooks --------------------------------------------------------------------------------------


async def test_a_webhook_receives_the_alerts_with_a_signature(bench: Bench, site: Site) -> None:
    channel = channels.Webhook(
        url=site.url, allow_private=True, secret=FromEnvironment(env="TEST_KEY"),
        headers={"X-Team": "data", "Authorization": key("Bearer ")},
    )  # fmt: skip
    returns(site)
    assert await bench.deliver(channel) == SUCCESS
    ((_, _, headers, body),) = site.asked
    message = json.loads(body)
    assert (message["channel"], message["alerts"]) == ("ops", [ALERT])
    assert (headers["X-Team"], headers["Authorization"]) == ("data", f"Bearer {SECRET}")
    assert headers["Cronledger-Delivery"] == str(bench.ledger.one("SELECT id FROM deliveries"))
    parts = dict(part.split("=") for part in headers["Cronledger-Signature"].split(","))
    signed = f"{parts['t']}.{body}".encode()
    assert parts["v1"] == hmac.new(KEY.encode(), signed, hashlib.sha256).hexdigest()
    assert abs(int(parts["t"]) - bench.ledger.now().timestamp()) < 60


@pytest.mark.parametrize("status", [500, 302])
async def test_a_receiver_that_does_not_accept_gets_the_same_alerts_again(
    bench: Bench, site: Site, status: int
) -> None:
    bench.ledger.stop_clock(bench.ledger.now())  # nothing is tried again before its time
    returns(site, status, Location="/elsewhere")
    ended = await bench.deliver(channels.Webhook(url=site.url, allow_private=True))
    assert (ended[:2], len(site.asked)) == (("FAILED", "delivery_failed"), 1)
    assert str(status) in ended[2]
    returns(site, 204)
    bench.ledger.pass_time(timedelta(hours=1))
    await bench.deliveries.run_all()
    assert bench.ledger.one("SELECT status, attempt FROM deliveries") == ("SUCCESS", 2)
    first, second = messages(site)
    assert first["alerts"] == second["alerts"]


async def test_a_private_address_is_refused_unless_the_channel_permits_it(
    bench: Bench, site: Site
) -> None:
    ended = await bench.deliver(channels.Webhook(url=site.url))
    assert (ended[0], site.asked) == ("FAILED", [])
    assert "allow_private" in ended[2]


async def test_slack_shows_a_text_as_it_is_and_notifies_nobody_by_it(
    bench: Bench, site: Site
) -> None:
    returns(site)
    channel = channels.Slack(url=site.url, allow_private=True)
    alert = {**ALERT, "summary": "report failed: <!channel> a & b"}
    assert await bench.deliver(channel, alert) == SUCCESS
    text = messages(site)[0]["text"]
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


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return the context of a server, whose certificate of localhost this process trusts."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
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


def mail_to(*to: str, **more: Any) -> Channel:
    return channels.Email(to=to, sender="cron@example.org", **{"host": "127.0.0.1", **more})


async def test_a_mail_has_a_subject_and_the_output(bench: Bench, mailbox: Mailbox) -> None:
    channel = mail_to("ops@example.org", "night@example.org", port=await listen(mailbox))
    assert await bench.deliver(channel) == SUCCESS
    ((envelope, mail),) = mailbox.mails
    assert envelope.rcpt_tos == ["ops@example.org", "night@example.org"]
    assert (envelope.mail_from, mail["From"]) == ("cron@example.org", "cron@example.org")
    assert mail["Subject"] == "Cron <report> failed"
    assert str(bench.ledger.one("SELECT id FROM deliveries")) in mail["Message-ID"]
    body = mail.get_content()
    assert "report failed: no disk" in body
    assert "no space left" in body
    # Line breaks of a job do not reach the header.
    alert = ALERT | {"scope": "a\r\nBcc: victim@example.org"}
    assert await bench.deliver(channel, alert) == SUCCESS
    _, (envelope, mail) = mailbox.mails
    assert envelope.rcpt_tos == ["ops@example.org", "night@example.org"]
    assert mail["Bcc"] is None


async def test_a_mail_is_sent_encrypted_with_a_login(
    bench: Bench, mailbox: Mailbox, tls: ssl.SSLContext
) -> None:
    for security, port in {
        "tls": await listen(mailbox, tls, auth_require_tls=False),
        "starttls": await listen(mailbox, tls_context=tls, require_starttls=True),
    }.items():
        channel = mail_to(
            "ops@example.org", host="localhost", port=port, security=security, user="cron",
            password=key(),
        )  # fmt: skip
        assert await bench.deliver(channel) == SUCCESS
    assert (len(mailbox.mails), mailbox.logins) == (2, ["cron", "cron"])


# -- commands, functions, Apprise ------------------------------------------------------------------


async def test_a_command_reads_the_alerts_from_a_file(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER_KEY", "k3y")
    copy = 'cp "$CRONLEDGER_ALERTS_FILE" copy.json; echo "$CRONLEDGER_ALERT_SUBJECT" > subject'
    copy += '; echo "$A$KEY" > variables'
    env = {"A": "b", "KEY": channels.FromEnvironment(env="PAGER_KEY")}
    channel = channels.Command(command=copy, cwd=str(tmp_path), env=env)
    assert await bench.deliver(channel) == SUCCESS
    assert json.loads((tmp_path / "copy.json").read_text("utf-8"))["alerts"] == [ALERT]
    assert (tmp_path / "subject").read_text("utf-8") == "Cron <report> failed\n"
    assert (tmp_path / "variables").read_text("utf-8") == "bk3y\n"


def receive(message: Any) -> None:
    RECEIVED.append(message)


async def receive_later(message: Any) -> None:
    RECEIVED.append(message)


def refuse(message: Any) -> None:
    raise ValueError("the pager is off")


def function(name: str) -> Channel:
    return channels.Function(python=f"{__name__}:{name}")


async def test_a_function_receives_the_message(bench: Bench) -> None:
    for name in ("receive", "receive_later"):
        assert await bench.deliver(function(name)) == SUCCESS
    assert [message["alerts"] for message in RECEIVED] == [[ALERT], [ALERT]]


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        (function("refuse"), ["ValueError: the pager is off"]),
        (
            channels.Command(command=["sh", "-c", "echo no route; exit 3"]),
            ["exited with status 3", "no route"],
        ),
        (channels.Slack(url=FromEnvironment(env="NOT_SET")), ["NOT_SET is not set"]),
        (channels.Apprise(urls=("json://localhost",)), ["pip install 'cronledger[apprise]'"]),
    ],
    ids=["function", "command", "missing secret", "missing extra"],
)
async def test_a_failed_delivery_has_the_error_of_its_channel(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, channel: Channel, said: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    status, code, message = await bench.deliver(channel)
    assert (status, code) == ("FAILED", "delivery_failed")
    assert all(text in message for text in said)


async def test_secrets_are_in_no_log_line_and_no_row(bench: Bench, site: Site) -> None:
    returns(site, 500)
    tried: list[Channel] = [
        channels.Webhook(url=key(f"{site.url}/"), allow_private=True, secret=key()),
        channels.Webhook(url=key("http://localhost:1/"), allow_private=True),
        function("refuse"),
    ]
    with capture_logs() as lines:
        for channel in tried:
            bench.declare(channel)
            bench.enqueue()
            await bench.deliveries.run_all()
    assert [line["event"] for line in lines].count("delivery_failed") == 3
    assert SECRET not in str(lines)
    rows = bench.ledger.values("SELECT d::text || c::text FROM deliveries d, channels c")
    assert len(rows) == 3
    assert SECRET not in str(rows)


async def test_apprise_notifies_its_urls_and_writes_none_to_the_log(
    bench: Bench, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    returns(site)
    caplog.set_level(logging.CRITICAL, "aiohttp.access")  # of the receiver
    caplog.set_level(logging.DEBUG)
    for prefix in ("", "nonsense://", "slack://x/", "json://{}/"):
        url = key(prefix.format(site.url.removeprefix("http://")))
        status, *_ = await bench.deliver(channels.Apprise(urls=(url,)))
        assert (status == "SUCCESS") == bool(site.asked) == prefix.startswith("json")
        assert SECRET not in caplog.text
    (message,) = messages(site)
    assert message["title"] == "Cron <report> failed"
    assert "no space left" in message["message"]


async def test_a_channel_that_nobody_can_use_fails_at_once(bench: Bench) -> None:
    bench.declare(function("receive"))
    # The database checks types, and a replica everything else.
    bench.ledger.values("""UPDATE channels SET settings = '{"kind": "slack", "url": "hunter2"}'""")
    bench.enqueue()
    await bench.deliveries.run_all()
    *ended, message = bench.ledger.one(
        "SELECT status, error_code, due_at, error_msg FROM deliveries"
    )
    assert ended == ["FAILED", "channel_invalid", None]
    assert message.startswith("settings.slack.url")
    assert "hunter2" not in message


UNSENT = {
    "the channel no longer exists": "DELETE FROM channels",
    "no replica has started the test in time": "SELECT test_channel('ops', '-1 s')",
    "its runner was lost in the last attempt": "UPDATE deliveries SET attempt = max_attempts",
    "its alerts are older than the retention": "DELETE FROM raised_alerts",
}


@pytest.mark.parametrize("message", UNSENT)
async def test_a_delivery_that_cannot_be_sent_any_more_ends(bench: Bench, message: str) -> None:
    bench.declare(function("receive"))
    if "test" in message:
        bench.ledger.values(UNSENT[message])
    else:
        bench.enqueue()
        bench.ledger.values(UNSENT[message])
    await bench.deliveries.run_all()
    assert bench.ledger.one("SELECT status, due_at, error_msg FROM deliveries") == (
        "FAILED", None, message
    )  # fmt: skip
    assert RECEIVED == []


async def test_a_copy_of_a_ledger_sends_no_delivery_of_its_original(bench: Bench) -> None:
    bench.declare(function("receive"))
    bench.enqueue()
    bench.ledger.values("UPDATE identity SET system_identifier = 1")
    with pytest.raises(psycopg.Error, match="database"):
        await bench.deliveries.run_all()
    bench.ledger.values("SELECT accept_database(true)")
    await bench.deliveries.run_all()
    assert bench.ledger.one("SELECT status, error_code, due_at FROM deliveries") == (
        "FAILED", "cancelled", None
    )  # fmt: skip
    assert RECEIVED == []


async def test_a_paused_channel_delivers_after_its_resume(bench: Bench) -> None:
    bench.declare(function("receive"))
    bench.enqueue()
    ledger = bench.ledger
    assert [ledger.one("SELECT pause_channel('ops', 'anna')") for _ in range(2)] == [True, False]
    bench.declare(function("receive"))  # an apply does not resume it
    with pytest.raises(
        psycopg.errors.ObjectNotInPrerequisiteState, match="it has been paused since"
    ):
        ledger.values("SELECT test_channel('ops')")
    await bench.deliveries.run_all()
    assert RECEIVED == []
    assert [ledger.one("SELECT resume_channel('ops', 'anna')") for _ in range(2)] == [True, False]
    await bench.deliveries.run_all()
    assert len(RECEIVED) == 1
    audit = "SELECT verb, outcome FROM audit WHERE requested_by = 'anna' ORDER BY id"
    assert ledger.values(audit) == [
        (verb, outcome)
        for verb in ("pause_channel", "resume_channel")
        for outcome in ("done", "unchanged")
    ]


async def test_a_failed_delivery_is_retried_by_a_person_with_all_of_its_attempts(
    bench: Bench, site: Site
) -> None:
    ledger, retry = bench.ledger, "SELECT retry_delivery(%s, 'anna')"
    returns(site, 500)
    bench.declare(channels.Webhook(url=site.url, allow_private=True))
    made = bench.enqueue()
    waits: list[int | None] = []
    while not waits or waits[-1] is not None:
        await bench.deliveries.run_all()
        waits.append(
            ledger.one("SELECT round(extract(epoch FROM due_at - finished_at)) FROM deliveries")
        )
        ledger.travel(by=timedelta(hours=1))
    assert waits == [10, 60, 300, 900, *[3600] * 5, None]
    assert len(site.asked) == 10
    returns(site)
    assert [ledger.one(retry, made) for _ in range(2)] == [True, False]
    await bench.deliveries.run_all()
    assert ledger.one("SELECT status, attempt, error_msg FROM deliveries") == ("SUCCESS", 1, None)
    audit = "SELECT object, outcome FROM audit WHERE verb = 'retry_delivery' ORDER BY id"
    assert ledger.values(audit) == [(str(made), "done"), (str(made), "unchanged")]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="it is SUCCESS"):
        ledger.values(retry, made)
    with pytest.raises(psycopg.errors.NoDataFound, match="delivery 4711 does not exist"):
        ledger.values(retry, 4711)


async def test_two_replicas_claim_different_deliveries(bench: Bench, one: Runner) -> None:
    bench.declare(function("receive"))
    made = [bench.enqueue(ALERT | {"id": number}) for number in range(3)]
    found = []
    async with AsyncExitStack() as stack:
        for _ in range(2):
            c = await stack.enter_async_context(await StepConnection.connect(bench.ledger.url))
            claimed = await one.statements.claim_deliveries(c, one.name, [uuid4(), uuid4()])
            found.append([delivery.id for delivery in await claimed.fetchall()])
    assert found == [made[:2], made[2:]]


async def test_a_lost_lease_writes_nothing(bench: Bench) -> None:
    bench.declare(function("steal"))
    STOLEN[:] = [bench.ledger.url]
    made = bench.enqueue()
    await bench.deliveries.run_all()
    assert bench.ledger.one("SELECT status, runner_id FROM deliveries WHERE id = %s", made) == (
        "RUNNING", "thief",
    )  # fmt: skip


STOLEN: list[str] = []


def steal(message: Any) -> None:
    with psycopg.connect(STOLEN[0], autocommit=True) as c:
        c.execute(
            "UPDATE cronledger.deliveries SET lease_token = gen_random_uuid(), runner_id = 'thief'"
        )


async def test_a_notification_is_not_lost_to_a_check_in_that_began_before_it(bench: Bench) -> None:
    bench.deliveries.note(watching=False)
    bench.declare(function("receive"))
    made = bench.enqueue()
    bench.deliveries.request()
    bench.deliveries.note(watching=False)  # the check-in read the ledger before there was a channel
    await bench.deliveries.step()
    assert bench.ledger.one("SELECT status FROM deliveries WHERE id = %s", made) == "RUNNING"


# -- the proof: 10,000 edges, and a receiver that is down half of the time -------------------------

JOBS, FLIPS, ROUND = 100, 100, 5


def flip(ledger: Ledger, first: int) -> None:
    """End the next `ROUND` executions of every job: FAILED and SUCCESS alternate."""
    numbers, now = range(first, first + ROUND), ledger.now()
    statuses = ["SUCCESS" if n % 2 else "FAILED" for n in numbers]
    for number in range(JOBS):
        plan_times = [now + n * timedelta(milliseconds=1) for n in numbers]
        ledger.ended(plan_times, statuses, job_name=f"job{number}")


@pytest.mark.slow
async def test_each_of_10000_edges_arrives_although_the_receiver_is_down_half_the_time(
    bench: Bench, site: Site
) -> None:
    bench.declare(channels.Webhook(url=site.url, allow_private=True))
    notify = Jsonb([{"channel": "ops"}])
    for number in range(JOBS):
        bench.ledger.job(f"job{number}", handler="external", notify=notify)
    accepted: list[dict[str, Any]] = []
    for number, first in enumerate(range(0, FLIPS, ROUND)):
        flip(bench.ledger, first)
        bench.ledger.travel(by=timedelta(seconds=61))
        bench.ledger.raise_alerts()
        down = number % 2 == 1
        returns(site, 503 if down else 200)
        await bench.deliveries.run_all()
        accepted += [] if down else alerts(site)
        site.asked.clear()
    assert bench.ledger.one("SELECT count(*) FROM deliveries WHERE attempt > 1") > 0
    returns(site)
    while bench.ledger.one("SELECT bool_or(status <> 'SUCCESS') FROM deliveries"):
        bench.ledger.travel(by=timedelta(hours=1))
        await bench.deliveries.run_all()
    accepted += alerts(site)
    raised = bench.ledger.values("SELECT id, job_name, kind FROM alerts ORDER BY id")
    assert len(raised) == JOBS * FLIPS
    assert {alert["id"] for alert in accepted} == {id_ for id_, _, _ in raised}
    kinds: dict[str, list[str]] = {}
    for _, job, kind in raised:
        kinds.setdefault(job, []).append(kind)
    assert list(kinds.values()) == [["opened", "closed"] * (FLIPS // 2)] * JOBS
    assert bench.ledger.one("SELECT count(DISTINCT delivery_id) FROM alerts") < 100


def alerts(site: Site) -> list[dict[str, Any]]:
    return [alert for message in messages(site) for alert in message["alerts"]]
