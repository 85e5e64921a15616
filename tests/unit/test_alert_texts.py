"""The texts of alerts for people."""

from typing import Any

import pytest

from cronledger.engine.alerting.message import MOST_SHOWN, STATES, subject, text
from cronledger.rules.channels import LedgerEvent
from cronledger.rules.notify import Event


def alert(**values: Any) -> dict[str, Any]:
    return {
        "id": 1, "event": "failed", "kind": "opened", "since": "2030-01-01T06:00:00+00:00",
        "job": "report", "scope": "global", "runner": None, "summary": "report failed: no disk",
        "plan_time": None, "execution_id": None, "owner": None, "details": {}, **values,
    }  # fmt: skip


def of(*alerts: dict[str, Any]) -> dict[str, Any]:
    return {"channel": "ops", "ledger": "a-ledger", "alerts": list(alerts)}


def test_every_event_has_words() -> None:
    events = {*Event.__args__, *LedgerEvent.__args__}  # type: ignore[attr-defined]
    assert STATES.keys() == events


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "Cron <report> failed"),
        ({"event": "recovered", "kind": "closed"}, "Cron <report> recovered"),
        ({"event": "overdue", "scope": "eu"}, "Cron <report eu> overdue"),
        ({"event": "overdue", "kind": "closed"}, "Cron <report> no longer overdue"),
        ({"kind": "reminder"}, "Cron <report> failed, since 2030-01-01T06:00:00+00:00"),
        ({"event": "runner_lost", "job": None, "runner": "r1"}, "Cron <r1> lost"),
        ({"event": "violation", "job": None, "scope": None}, "Cron <ledger> violations"),
    ],
)
def test_a_subject_names_the_job_and_its_state(values: dict[str, Any], line: str) -> None:
    assert subject(of(alert(**values))) == line


def test_a_subject_of_several_alerts_counts_them() -> None:
    several = [alert(job=name) for name in ("a", "b", "c", "d", "a")]
    assert subject(of(*several)) == "cronledger: 5 alerts about a, b, c, …"


def test_a_text_contains_the_cause_and_the_end_of_the_output() -> None:
    details = {"error_code": "exit_code", "error_msg": "exit 1", "output": "x" * 5000 + "the end"}
    found = text(of(alert(execution_id=7, owner="data", runbook="https://wiki/x", details=details)))
    for part in (
        "report: failed", "no disk", "execution: 7", "owner: data", "runbook: https://wiki/x",
        "error: exit_code",
    ):  # fmt: skip
        assert part in found
    assert found.endswith("the end\n")
    assert len(found) < 3000


def test_a_text_describes_the_first_alerts_and_counts_the_others() -> None:
    found = text(of(*[alert(job=f"job-{n}") for n in range(MOST_SHOWN + 3)]))
    assert f"job-{MOST_SHOWN - 1}:" in found
    assert f"job-{MOST_SHOWN}:" not in found
    assert found.endswith("3 more alerts are not shown.\n")
