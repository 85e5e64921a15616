"""docs/howto/channels.md: its files are applied, and its Python snippets are run."""

import asyncio
import hashlib
import hmac
import time
from pathlib import Path
from typing import Any

import pytest

from cronledger.rules.channels import KINDS
from cronledger.sources import toml
from cronledger.sources.apply import apply
from tests.db.support.engine import Ledger
from tests.docs.support.pages import run_snippets, snippets

PAGE = "howto/channels.md"
SECONDS = 1_800_000_000
KEY = "a key with spaces and ü"


def test_the_file_and_the_app_of_the_documentation_have_the_same_channels(
    ledger: Ledger, tmp_path: Path
) -> None:
    (text,) = snippets(PAGE, "toml")
    (tmp_path / "cronledger.toml").write_text(text)
    found = toml.load(tmp_path / "cronledger.toml")
    assert found.warnings == ()
    apply(ledger.url, found.jobs, channels=found.channels, source="file")
    assert set(ledger.values("SELECT kind FROM channel_status")) == set(KINDS)
    assert ledger.values("SELECT channel FROM missing_channels") == []
    of_app = run_snippets(PAGE, "App(")["app"].channels
    assert of_app == {name: found.channels[name] for name in ("ops", "chat")}


def test_the_receiver_of_the_documentation_knows_what_is_genuine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_genuine = run_snippets(PAGE, "hmac")["is_genuine"]
    body = '{"alerts": [{"summary": "ü"}]}'.encode()
    # As a webhook with a secret sends it: tests/db/test_deliveries.py.
    given = hmac.new(KEY.encode(), f"{SECONDS}.".encode() + body, hashlib.sha256).hexdigest()
    signature = f"t={SECONDS},v1={given}"
    monkeypatch.setattr(time, "time", lambda: SECONDS)
    assert is_genuine(signature, body, KEY)
    for wrong in (
        (signature, body + b" ", KEY), (signature, body, "other"), ("", body, KEY),
        (f"t={SECONDS},v1=ü", body, KEY), (f"t={SECONDS}1,v1={given}", body, KEY),
        (f"v1={given}", body, KEY), (f"t=x,v1={given}", body, KEY),
    ):  # fmt: skip
        assert not is_genuine(*wrong)
    monkeypatch.setattr(time, "time", lambda: SECONDS + 301)
    assert not is_genuine(signature, body, KEY)


def test_the_function_of_the_documentation_takes_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    deliver = run_snippets(PAGE, "open_ticket")["open_ticket"]
    message: dict[str, Any] = {"alerts": [{"id": 17, "event": "failed", "summary": "no disk"}]}
    asyncio.run(deliver(message))
    assert capsys.readouterr().out == "17 failed no disk\n"
