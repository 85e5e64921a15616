"""What jobs require of each other, without a ledger."""

from typing import Any

import pytest

from cronledger.rules.chains import cycle, problems, resolved
from cronledger.rules.firings import Firings
from cronledger.rules.model import Job
from tests.unit.support.schedules import utc


def job(name: str, **fields: Any) -> Job:
    return Job.model_validate({"name": name, "handler": "external", **fields})


def known(*jobs: Job) -> dict[str, Job]:
    return {one.name: one for one in jobs}


def messages(*jobs: Job, others: tuple[Job, ...] = (), complete: bool = True) -> list[str]:
    return [str(one) for one in problems(jobs, known(*others), "f", complete=complete)]


A = job("a", schedule="H 3 * * *", timezone="Europe/Berlin")
B = job("b", after="a")
C = job("c", after={"job": "b"})


def test_a_chain_has_the_firings_of_its_first_job() -> None:
    after, through = utc("2026-01-01"), utc("2026-01-08")
    chain = resolved((C, B, A), {})
    times = [[*Firings.of(one, after, through).plan_times()] for one in chain]
    assert len(times[0]) == 7
    assert times[0] == times[1] == times[2]
    assert chain[:2] == resolved((C, B), known(A))
    (stored,) = resolved((B,), known(A))
    assert resolved((C,), known(stored)) == chain[:1]
    assert messages(*chain) == []


def test_a_scope_of_a_chain_hashes_as_the_scope_that_it_requires() -> None:
    tenants = {"scope_kind": "tenant", "scopes": ["x", "y"]}
    after, through = utc("2026-01-01"), utc("2026-01-08")

    def times(one: Job, scope: str | None) -> list[Any]:
        return [*Firings.of(one, after, through, scope=scope).plan_times()]

    a, b, c, d = resolved(
        (
            A,
            job("b", after={"job": "a", "scope": "global"}, **tenants),
            job("c", after="b", **tenants),
            job("d", after="e", **tenants),
        ),
        known(job("e", schedule="H 3 * * *", **tenants)),
    )
    assert times(a, None) == times(b, "x") == times(b, "y") == times(c, "y")
    assert times(d, "x") != times(d, "y")
    assert times(d, "y") == times(job("e", schedule="H 3 * * *", **tenants), "y")


def test_a_cycle_is_reported_with_its_path() -> None:
    without_beginning = (job("a", after="c"), B, C)
    assert resolved(without_beginning, {}) == without_beginning
    looped = known(job("a", schedule="@daily", requires="c"), B, C)
    assert cycle("a", looped) == ("a", "c", "b", "a")
    assert cycle("a", known(A, B, C)) == ()
    found = messages(*looped.values())
    assert len(found) == 3
    assert "which requires c, which requires b, which requires a" in found[0]


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (job("x", after="b2"), "did you mean `b`?"),
        (job("x", after="manual"), "without a schedule"),
        (job("x", after="tenants"), "of the kind"),
        (job("x", after={"job": "tenants", "scope": "global"}), "no scope global"),
        (job("x", after="a", scope_kind="tenant", scopes=["y"]), '{ job = "a", scope = "global" }'),
    ],
)
def test_a_requirement_that_cannot_be_met_is_refused(one: Job, message: str) -> None:
    others = (
        A, B, job("manual"), job("tenants", schedule="@daily", scope_kind="tenant", scopes=["y"]),
    )  # fmt: skip
    (found,) = messages(one, others=others)
    assert message in found


def test_an_unknown_job_is_a_warning_if_other_sources_may_declare_it() -> None:
    (found,) = problems((job("x", after="y"),), {}, "f", complete=False)
    assert found.warning
    (found,) = problems((job("x", after="y"),), {}, "f")
    assert not found.warning
