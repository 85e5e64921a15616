"""A runner with older tzdata or croniter executes what newer ones plan, and plans it not itself."""

from datetime import UTC, datetime

import pytest

from cronledger.app import App
from cronledger.engine.planners import Planners, version
from cronledger.engine.presence import fingerprint
from cronledger.replica import Replica
from cronledger.rules.model import Handler, Job
from cronledger.testing import Ledger

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
OLD = {"tzdata": "2020a", "croniter": "7.0.0"}


def job(**values: object) -> Job:
    policies = {"schedule": "* * * * *", "handler": Handler.PYTHON, "target": {"function": "m:f"}}
    return Job.model_validate({"name": "j", **policies, **values})


@pytest.mark.parametrize(
    ("theirs", "spec", "left"),
    [
        ({"tzdata": "2020b"}, {"timezone": "Europe/Berlin"}, True),
        ({"tzdata": "2020b"}, {}, False),
        ({"tzdata": "2019c"}, {"timezone": "Europe/Berlin"}, False),
        ({"croniter": "7.0.10"}, {}, True),
        ({"croniter": "7.0.10"}, {"schedule": "@every 90s"}, False),
        ({"croniter": "7.0.10"}, {"schedule": None}, False),
        ({"croniter": "6.9"}, {}, False),
    ],
)
def test_what_is_left_to_newer_runners(
    theirs: dict[str, str], spec: dict[str, object], left: bool
) -> None:
    mine = Planners(OLD)
    other = {"queues": ["default"], "handlers": ["m:f"], "fingerprint": {**OLD, **theirs}}
    mine.observe([other])
    assert mine.leaves(job(**spec), "default") is left
    assert not mine.leaves(job(**spec), "heavy")
    mine.observe([{**other, "handlers": ["m:g"]}])
    assert not mine.leaves(job(**spec), "default")
    mine.observe(None)
    assert not mine.leaves(job(**spec), "default")


def test_versions_sort_as_people_read_them() -> None:
    sorted_already = ["", "2025", "2025a", "2025b", "2026a"]
    assert sorted(sorted_already, key=version) == sorted_already
    assert version("7.0.10") > version("7.0.9") > version("7.0") > version(None)


async def test_an_older_runner_executes_and_does_not_plan(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("zones")

    @app.job("* * * * *", timezone="Europe/Berlin", overlap="allow")
    def berlin() -> None:
        return

    @app.job("* * * * *", overlap="allow")
    def utc() -> None:
        return

    def runner(name: str) -> Replica:
        return ledger.replica(app, runner_id=name)

    ledger.travel(to=NOON.replace(second=30))
    new = runner("new")
    old = runner("old")
    async with new:
        with monkeypatch.context() as patched:
            patched.setattr(
                "cronledger.engine.parts.fingerprint", lambda: {**fingerprint(), "tzdata": "2001a"}
            )
            await old.start()
        ledger.travel(by="1m")
        await new._pulse()  # seen in good time
        assert [ran.job for ran in await old.step()] == ["utc"]
        ledger.trigger("berlin")
        assert [(ran.job, ran.trigger) for ran in await old.step()] == [("berlin", "manual")]
        assert [(ran.job, ran.trigger) for ran in await new.step()] == [("berlin", "schedule")]
        ledger.travel(by="1m")
        await new._pulse()
        assert [ran.job for ran in await old.step()] == ["utc"]
    # The newer one has left: nobody else is there to plan it.
    assert [ran.job for ran in await old.step()] == ["berlin"]
    await old.drain()
