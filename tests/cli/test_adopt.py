"""`cronledger adopt`, and the wrapper of the other scheduler around the switch."""

import errno
import json
from importlib import import_module
from pathlib import Path
from threading import Event

import pytest

from cronledger.observing.delivery import Target, deliver_own, runs_here
from cronledger.observing.sides import Side, remember
from cronledger.observing.spool import Run, Spool
from tests.cli.conftest import Ask, Cli
from tests.cli.test_observe import NOWHERE, Observe, a_run, ended, files, observe, spool
from tests.waiting import PATIENCE

__all__ = ["observe", "spool"]

module = import_module("cronledger.cli.observe")

FILE = '[jobs.seen]\nschedule = "0 0 * * *"\ncommand = ["true"]\nobserved = true\n'


@pytest.fixture
def seen(cli: Cli, ask: Ask, tmp_path: Path) -> Ask:
    """The observed job `seen`, which replicas may adopt."""
    path = tmp_path / "jobs.toml"
    path.write_text(FILE)
    assert cli("jobs", "apply", str(path), "--source", "main").exit_code == 0
    return ask


def midnight(ask: Ask, days: int) -> str:
    ((found,),) = ask(f"SELECT (date_trunc('day', now() AT TIME ZONE 'UTC') + '{days} d')::text")
    return str(found)


def test_the_switch_lies_between_two_plan_times(cli: Cli, seen: Ask, tmp_path: Path) -> None:
    day = midnight(seen, 3)
    shown = cli("adopt", "seen", "--at", day, "--dry-run")
    assert shown.output.startswith(f"seen: replicas fire it from {day[:10]}T00:00:00Z on")
    stored = "SELECT observed, (adopted_at + '5 s')::text, returned_at FROM cronledger.jobs"
    assert seen(stored) == [(True, None, None)]
    made = json.loads(cli("adopt", "seen", "--at", day, "--reason", "moved", "--json").output)
    assert (made["revision"], made["last"][:10]) == (2, midnight(seen, 2)[:10])
    (before,) = seen(stored)
    assert "another scheduler runs it" in cli("why", "seen", made["last"]).output
    assert "it may start at" in cli("why", "seen", made["first"]).output
    # An apply keeps it, and has no difference.
    assert "differ" not in cli("jobs", "diff", str(tmp_path / "jobs.toml")).output
    cli("jobs", "apply", str(tmp_path / "jobs.toml"), "--source", "main")
    assert seen(stored) == [before]
    cli("adopt", "seen", "--at", midnight(seen, 5), "--back")
    for more in (("--dry-run",), ()):
        withdrawn = cli("adopt", "seen", "--at", day, "--back", *more).output
        assert withdrawn.startswith("seen: its adoption at ")
        assert " and its return to the other scheduler at " in withdrawn
        assert "are withdrawn, and the other scheduler keeps firing it" in withdrawn
        assert seen("SELECT adopted_at = returned_at FROM cronledger.jobs") == [(not more,)]
    early = cli("adopt", "seen", "--at", midnight(seen, 1))
    assert "learn of this change only then" in early.stderr


def test_a_wrong_argument_is_an_error(cli: Cli, seen: Ask) -> None:
    for job, at, *more, code, problem in (
        ("none", "2100-01-01", 2, "job 'none' does not exist"),
        ("seen", "soon", 2, "is not a time"),
        ("seen", "2020-01-01", 2, "must be between 5 s and 100 years ahead"),
        ("seen", "9899-12-31T12:00:00Z", 2, "it has no plan_time from"),
        ("seen", "2050-01-01", "--back", 1, "it is not adopted"),
    ):
        result = cli("adopt", job, "--at", at, *map(str, more))
        assert (result.exit_code, str(problem) in result.output) == (code, True), result.output


@pytest.mark.long
def test_the_wrapper_starts_what_the_other_scheduler_has_to_run(
    observe: Observe, seen: Ask, spool: Path
) -> None:
    def fire(**url: str) -> tuple[int, str, str]:
        code, out, err = ended(observe("seen", "--", "echo", "ran", **url))
        return code, out.strip(), err

    def adopted(state: str) -> None:
        seen(f"UPDATE cronledger.jobs SET {state} RETURNING 1")

    assert fire(url=NOWHERE)[:2] == (0, "ran")
    assert fire() == (0, "ran", "")
    assert files(spool) == [".side"]
    adopted("adopted_at = cronledger.db_clock() + interval '1 h'")
    assert fire() == (0, "ran", "")
    assert fire(url=NOWHERE)[:2] == (0, "ran")  # it keeps to the last reply
    adopted("adopted_at = cronledger.db_clock()")
    assert fire() == (0, "", "")
    assert files(spool) == [".side"]  # it has delivered the last report
    reports = seen("SELECT count(*) FROM cronledger.reports")
    assert fire(url=NOWHERE)[:2] == (0, "")
    assert seen("SELECT count(*) FROM cronledger.reports") == reports
    adopted("returned_at = cronledger.db_clock()")
    assert fire() == (0, "ran", "")
    adopted("observed = false, handler = 'observed', target = '{}'")
    assert fire() == (0, "ran", "")
    assert files(spool) == []


def test_a_side_that_cannot_be_written_leaves_the_reply(
    seen: Ask, spool: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies: list[bool] = []

    def full(*_: object) -> None:
        assert replies == [False], "the reply waits for the disk"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Spool, "replace", full)
    seen("UPDATE cronledger.jobs SET adopted_at = cronledger.db_clock()")
    said: list[str] = []
    target, run = Target(database_url, "cronledger", said.append), a_run()
    runs_here(target, run, Spool(spool), replies)
    assert replies == [False]
    assert deliver_own(target, a_run(0), Spool(spool))
    assert ["No space left" in line for line in said] == [True, True]


@pytest.mark.parametrize("side", [Side(None, None), Side(0.0, None)])
def test_the_last_reply_decides_if_the_ledger_does_not_reply_in_time(
    spool: Path, monkeypatch: pytest.MonkeyPatch, side: Side
) -> None:
    may_end = Event()

    def reply_late(_: object, run: Run, __: object, replies: list[bool]) -> None:
        may_end.wait(PATIENCE)
        replies.append(not side.runs(run.started))

    monkeypatch.setattr(module, "runs_here", reply_late)
    monkeypatch.setattr(module, "ASK_SECONDS", 0.01)
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", NOWHERE)
    decided = module._runs_here(Spool(spool), a_run(), module._Ledgers(None), side)
    may_end.set()
    assert decided == (side.replicas_from is None)


@pytest.mark.parametrize("fails", [True, False])
def test_the_delivery_of_a_wrapper_that_starts_nothing_may_fail_or_hang(
    cli: Cli, seen: Ask, spool: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    begun, may_end, has_ended = Event(), Event(), Event()

    def deliver(*_: object) -> int:
        begun.set()
        if fails:
            raise RuntimeError
        may_end.wait(PATIENCE)
        has_ended.set()
        return 0

    monkeypatch.setattr(module, "deliver_all", deliver)
    monkeypatch.setattr(module, "LAST_SECONDS", 0.01)
    monkeypatch.setattr(module, "ASK_SECONDS", PATIENCE)
    monkeypatch.setenv("CRONLEDGER_SPOOL_DIR", str(spool))
    spool.mkdir()
    remember(Spool(spool), "seen", "", Side(None, None))
    seen("UPDATE cronledger.jobs SET adopted_at = cronledger.db_clock()")
    result = cli("observe", "seen", "--", "false")
    assert (result.exit_code, result.output) == (0, "")
    assert begun.wait(PATIENCE)
    assert not has_ended.is_set()
    may_end.set()
