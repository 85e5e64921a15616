"""docs/howto/channels.md: its files are applied, and its Python snippets are run."""

import asyncio
import hashlib
import hmac
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from cronledger.engine.alerting.senders import Sender
from cronledger.ledger.rows import Delivery
from cronledger.rules.channels import KINDS, Webhook
from cronledger.rules.targets import FromEnvironment
from cronledger.sources import toml
from cronledger.sources.apply import apply
from cronledger.sources.crontab import Options, read_crontab
from cronledger.sources.crontab_toml import render
from tests.db.support.engine import Ledger
from tests.db.test_python_howtos import run_snippets

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "channels.md"
AT = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY = "a key with spaces and ü"


@contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A server for webhooks: its URL, and the headers and body of each request."""
    received: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((dict(self.headers), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def signed() -> tuple[str, bytes]:
    """The signature and the body that a webhook with a secret sends."""
    delivery = Delivery(7, "alerts.ops", 1, 10, uuid4(), {}, {}, AT)
    message = {"channel": "ops", "ledger": "x", "alerts": [{"summary": "ü"}]}
    with receiver() as (url, received):
        channel = Webhook(url=url, secret=FromEnvironment(env="KEY"), allow_private=True)
        asyncio.run(Sender(Mock(), Mock(), delivery, 5.0, {"KEY": KEY}).send(channel, message))
    ((headers, body),) = received
    return headers["Cronledger-Signature"], body


def test_the_file_of_the_documentation_has_each_kind_and_is_applied(
    ledger: Ledger, database_url: str, tmp_path: Path
) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "cronledger.toml").write_text(text)
    found = toml.load(tmp_path / "cronledger.toml")
    assert found.warnings == ()
    apply(database_url, found.jobs, source="file")
    assert set(ledger.values("SELECT kind FROM channels")) == set(KINDS)
    assert ledger.values("SELECT channel FROM missing_channels") == []


def test_the_app_of_the_documentation_has_the_channels_of_its_file(
    ledger: Ledger, database_url: str, tmp_path: Path
) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "cronledger.toml").write_text(text)
    of_file = {job.name: job for job in toml.load(tmp_path / "cronledger.toml").jobs}
    app = run_snippets("channels.md", "App(")["app"]
    apply(database_url, list(app.jobs.values()), source="shop")
    assert ledger.values("SELECT name FROM channels ORDER BY name") == ["chat", "ops"]
    assert all(app.jobs[name] == of_file[name] for name in ("alerts.chat", "alerts.ops"))


def test_the_receiver_of_the_documentation_knows_what_is_genuine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_genuine = run_snippets("channels.md", "hmac")["is_genuine"]
    signature, body = signed()
    monkeypatch.setattr(time, "time", AT.timestamp)
    seconds, _, given = signature.removeprefix("t=").partition(",v1=")
    text = seconds.encode() + b"." + body
    assert given == hmac.new(KEY.encode(), text, hashlib.sha256).hexdigest()
    assert is_genuine(signature, body, KEY)
    later = seconds.encode() + b"1"
    for wrong in (
        (signature, body + b" ", KEY), (signature, body, "other"), ("", body, KEY),
        (f"t={seconds},v1=ü", body, KEY), (f"t={later.decode()},v1={given}", body, KEY),
        (f"v1={given}", body, KEY), (f"t=x,v1={given}", body, KEY),
    ):  # fmt: skip
        assert not is_genuine(*wrong)
    monkeypatch.setattr(time, "time", lambda: AT.timestamp() + 301)
    assert not is_genuine(signature, body, KEY)


def test_the_function_of_the_documentation_takes_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    deliver = run_snippets("channels.md", "open_ticket")["open_ticket"]
    message: dict[str, Any] = {"alerts": [{"id": 17, "event": "failed", "summary": "no disk"}]}
    asyncio.run(deliver(message))
    assert capsys.readouterr().out == "17 failed no disk\n"


def test_an_imported_crontab_is_applied_with_its_channel(
    ledger: Ledger, database_url: str, tmp_path: Path
) -> None:
    text = 'MAILTO="root, ops@example.org"\n0 6 * * * report\nMAILTO=""\n@daily tidy\n'
    crontab = read_crontab(text, file="-", format="user", options=Options())
    (tmp_path / "cronledger.toml").write_text(render([crontab], Options()))
    apply(database_url, toml.load(tmp_path / "cronledger.toml").jobs, source="crontab")
    name, target = ledger.one("SELECT name, target -> 'channel' FROM jobs WHERE queue = 'alerts'")
    assert name == "alerts.mail-root-ops-example-org"
    assert target["to"] == ["root@localhost", "ops@example.org"]
    assert target["sender"] == "cronledger@localhost"
    assert ledger.values("SELECT name, notify #>> '{0,channel}' FROM jobs WHERE queue = 'default'"
                         " ORDER BY name") == [
        ("report", "mail-root-ops-example-org"), ("tidy", None)
    ]  # fmt: skip
