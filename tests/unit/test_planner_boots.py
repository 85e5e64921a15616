"""F100: the plan_times of `@reboot` are the boots of a host that the row knows."""

from datetime import timedelta
from typing import Any

import pytest

from cronledger.audit.walk import Definition, walk
from cronledger.rules.model import Job
from cronledger.rules.plans import Boot
from cronledger.rules.validation import problems
from tests.unit.support.planning import KEY, at, job, planned, reading_ahead, runs, say, skips

BOOTS = [
    Boot(at(time), timedelta(minutes=noticed))
    for time, noticed in (("09:01", 5), ("09:02", 0), ("09:03", 1), ("09:04", 2), ("09:05", 0))
]


def reboot(**fields: Any) -> Job:
    return job("@reboot", grace=timedelta(minutes=1), **fields)


@pytest.mark.parametrize("read_ahead", [1, 32])
@pytest.mark.parametrize(
    ("policy", "ran", "skipped"),
    [
        ({}, ["09:05"], ["host_absent 09:01", "superseded 09:02-09:03 x2", "host_absent 09:04"]),
        ({"catch_up": "all", "overlap": "allow", "catch_up_limit": 1}, ["09:03", "09:05"],
         ["host_absent 09:01", "missed 09:02", "host_absent 09:04"]),
    ],
)  # fmt: skip
def test_each_boot_runs_if_its_host_checked_in_within_grace(
    read_ahead: int, policy: dict[str, Any], ran: list[str], skipped: list[str]
) -> None:
    with reading_ahead(read_ahead):
        answer = planned("09:00", "09:05:30", reboot(**policy), boots=BOOTS)
    assert (runs(answer), skips(answer)) == (ran, skipped)
    assert (answer.parked, answer.planned_through) == ("boot", at("09:05:30"))


def test_between_boots_the_row_waits() -> None:
    delayed = reboot(schedule_delay=timedelta(minutes=2))
    answer = planned("09:04", "09:06", delayed, boots=BOOTS[-1:])
    assert (runs(answer), say(answer.next_due_at)) == ([], "09:07")
    assert planned("09:00", "09:06", reboot(ends_at=at("09:05"))).parked == "ended"


def test_the_audit_has_the_same_boots() -> None:
    plan_times = [boot.plan_time for boot in BOOTS]
    definition = Definition(" @Reboot ", boots=plan_times, starts_at=at("09:02"))
    assert [*walk(definition, KEY, at("09:01"), at("09:04"))] == plan_times[1:4]


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"every": ["role=web"], "jitter": "5m", "schedule_delay": "1m"}, []),
        ({"scope_kind": "host", "scopes": ["web1"]}, []),
        ({"on": ["host=web1"]}, ["schedule"]),
        ({"every": ["role=web"], "calendar": "de", "requires": ["a"]}, ["calendar", "requires"]),
        ({"every": ["role=web"], "windows": True, "start_by": "5m"}, ["windows", "start_by"]),
    ],
)
def test_a_boot_needs_hosts_and_is_not_known_in_advance(
    fields: dict[str, Any], refused: list[str]
) -> None:
    found = problems(job("@reboot", target={"command": "true"}, **fields))
    assert [problem.field for problem in found] == refused
    assert all(problem.remedy for problem in found)
