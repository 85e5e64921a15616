"""Declarations of channels: what a file and an App accept, and how a wrong one is reported."""

from pathlib import Path
from typing import Any

import pytest

from cronledger import App
from cronledger.channels import Apprise, Command, Email, FromEnvironment, Function, Slack, Webhook
from cronledger.rules.channels import KINDS, Channel, checked, read, settings
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.toml import load

FILE = """
[channels.hook]
kind = "webhook"
url = { env = "HOOK_URL" }
headers = { Authorization = { env = "TOKEN", prefix = "Bearer " } }
secret = { env = "KEY" }
on_ledger = ["violation", "runner_lost"]

[channels.chat]
kind = "slack"
url = "https://hooks.example.org/services/T0/B0"

[channels.mail]
kind = "email"
to = ["a@example.org", "b@example.org"]
sender = "cron@example.org"
host = "smtp.example.org"
port = 587
security = "starttls"
user = "cron"
password = { env = "SMTP_PASSWORD" }

[channels.pager]
kind = "command"
command = ["page", "--from-file"]
cwd = "/srv"

[channels.code]
kind = "python"
python = "shop.alerts:deliver"

[channels.any]
kind = "apprise"
urls = { env = "APPRISE_URL" }

[jobs.report]
command = ["true"]
notify = "chat"
"""
CHANNELS: dict[str, Channel] = {
    "hook": Webhook(
        url=FromEnvironment(env="HOOK_URL"),
        headers={"Authorization": FromEnvironment(env="TOKEN", prefix="Bearer ")},
        secret=FromEnvironment(env="KEY"),
        on_ledger=("violation", "runner_lost"),
    ),
    "chat": Slack(url="https://hooks.example.org/services/T0/B0"),
    "mail": Email(
        to=("a@example.org", "b@example.org"), sender="cron@example.org", host="smtp.example.org",
        port=587, security="starttls", user="cron", password=FromEnvironment(env="SMTP_PASSWORD"),
    ),
    "pager": Command(command=["page", "--from-file"], cwd="/srv"),
    "code": Function(python="shop.alerts:deliver"),
    "any": Apprise(urls=(FromEnvironment(env="APPRISE_URL"),)),
}  # fmt: skip


def refused(name: str, channel: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        checked(name, channel)
    return str(caught.value)


def test_a_file_and_an_app_declare_the_same_channels(tmp_path: Path) -> None:
    path = tmp_path / "cronledger.toml"
    path.write_text(FILE)
    declared = load(path).channels
    assert declared == App(channels=CHANNELS).channels == CHANNELS
    assert set(KINDS) == {channel.kind for channel in declared.values()}
    assert [read(settings(channel)) for channel in CHANNELS.values()] == list(CHANNELS.values())


@pytest.mark.parametrize(
    ("channel", "message"),
    [
        ("https://x", 'channels.ops: is not a table; write it like [channels.ops], with kind ='),
        ({"kind": "sms"}, 'channels.ops.kind = "sms": is not a kind of channel; use one of web'),
        ({"kind": "slack", "url": "ftp://x"}, "channels.ops.url: must begin with http:// or https"),
        ({"kind": "slack", "url": {"env": "PGX"}}, "channels.ops.url.env: CRONLEDGER_* and PG* va"),
        ({"kind": "slack", "url": "https://x", "urll": 1},
         "channels.ops.urll: unknown name; did you mean `url`?"),
        ({"kind": "webhook", "url": "https://x", "secret": "hunter2"},
         'channels.ops.secret: is not read from the environment; write it as {env = "NAME"}'),
        ({"kind": "email", "to": ["ops"], "sender": "a@b"},
         'channels.ops.to[0] = "ops": is not an address; write it like ops@example.org'),
        ({"kind": "email", "to": [], "sender": "a@b"}, "channels.ops.to = []: is empty; name at l"),
        ({"kind": "email", "to": "a@b", "sender": "a@b", "user": "hunter2"},
         "channels.ops: has no password; set both user and password, or neither"),
        ({"kind": "command", "command": []}, "channels.ops.command: is neither a list of words"),
        ({"kind": "apprise", "urls": 3}, "channels.ops.urls: is not a list; put it in br"),
        ({"kind": "slack", "url": "https://x", "on_ledger": ["failed"]},
         "channels.ops.on_ledger[0] = \"failed\": is not a valid choice; use 'violation'"),
    ],
)  # fmt: skip
def test_a_wrong_channel_names_field_value_and_remedy(channel: object, message: str) -> None:
    found = refused("ops", channel)
    assert found.startswith(message)
    assert "\n" not in found
    assert "hunter2" not in found


@pytest.mark.parametrize("name", ["", "a b", ".ops", "x" * 101])
def test_a_wrong_name_is_refused(name: str) -> None:
    message = "is not a name for a channel; begin with a letter or digit"
    assert message in refused(name, {"kind": "slack", "url": "https://x"})


def test_files_and_apps_report_all_problems_of_their_channels(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cronledger.toml"
    path.write_text(
        '[channels.a]\nkind = "sms"\n[channels.b]\nkind = "email"\n[channels.c]\nkind = "slack"\n'
        'url = "https://x"\n'
    )
    wrong: Any = {"ops": {"kind": "sms"}}
    with pytest.raises(ConfigurationError, match=r"channels\.ops\.kind"):
        App(channels=wrong)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    fields = [(problem.job, problem.field) for problem in caught.value.problems]
    assert fields == [
        (None, "channels.a.kind"), (None, "channels.b.to"), (None, "channels.b.sender")
    ]  # fmt: skip
    assert all(problem.where == str(path) and problem.remedy for problem in caught.value.problems)
