"""F111: without the extra `http`, a replica refuses what needs it, and names the extra."""

from importlib.util import find_spec
from typing import Any

import psycopg
import pytest

from cronledger import extras
from cronledger.channels import Slack
from cronledger.engine.alerting.senders import DeliveryError, _import_post
from cronledger.process.daemon import DaemonOptions
from cronledger.replica import Replica
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import Settings
from cronledger.sources.apply import ApplyRequest
from tests.db.support.whole_replica import Whole

REMEDY = "needs aiohttp, which is not installed; run `pip install 'cronledger[http]'`"
URL = "https://example.com/"


@pytest.fixture(autouse=True)
def _without_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        extras, "find_spec", lambda name: None if name == "aiohttp" else find_spec(name)
    )


def request(job: dict[str, Any], **channels: Slack) -> ApplyRequest:
    jobs = [Job.model_validate({"name": "call", "handler": "external", **job})]
    return ApplyRequest(
        jobs=jobs, channels=channels, source="test", deploy=None, force=False, by="test",
        calendars={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (request({"handler": "http", "target": {"url": URL}}), "jobs.call.url"),
        (request({"ping": URL}), "jobs.call.ping"),
        (request({}, ops=Slack(url=URL)), "channels.ops"),
    ],
)
async def test_declarations_that_need_it_are_refused(
    asked: ApplyRequest, field: str, database_url: str
) -> None:
    replica = Replica(url=database_url, settings=Settings(), request=asked)
    with pytest.raises(ConfigurationError) as refused:
        await replica.start()
    assert str(refused.value) == f"{field}: {REMEDY}"
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT FROM cronledger.jobs").fetchall() == []


async def test_an_execution_fails_with_the_name_of_the_extra(whole: Whole) -> None:
    whole.declare("call", "http", {"url": URL})
    async with whole.replica():
        ended = await whole.run("call")
    assert (ended["status"], ended["error_code"]) == ("FAILED", "not_started")
    assert ended["error_msg"] == f"handler http: {REMEDY}"


def test_settings_that_need_it_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"CRONLEDGER_PING_URL: .*\[http\]"):
        Replica(url="postgresql://unused", settings=Settings(ping_url=URL))
    settings = Settings(database_url="postgresql://unused", health_port=0)
    with pytest.raises(ConfigurationError, match=r"CRONLEDGER_HEALTH_PORT: .*\[http\]"):
        DaemonOptions(settings=settings).run()


def test_a_delivery_names_it() -> None:
    with pytest.raises(DeliveryError, match=r"webhook or slack: .*\[http\]"):
        _import_post()
