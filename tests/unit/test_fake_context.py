"""F43: a Context for calling handlers as plain functions."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cronledger import Cancelled, Context, LeaseLost
from cronledger.rules.model import ScopeKey, Trigger
from cronledger.testing import context


def test_a_context_needs_no_runner() -> None:
    ctx = context("report", {"n": 1}, resources="pool", attempt=2, scope_kind="tenant")
    assert isinstance(ctx, Context)
    assert (ctx.job, ctx.payload, ctx.resources, ctx.attempt) == ("report", {"n": 1}, "pool", 2)
    assert ctx.scope == ScopeKey("report", "tenant", "global")
    assert (ctx.trigger, ctx.plan_time.utcoffset()) == (Trigger.SCHEDULE, timedelta(0))
    ctx.check_lease()
    assert not ctx.cancelled
    with pytest.raises(RuntimeError, match=r"needs a runner, .* fixture `ledger`"):
        ctx.transaction()
    with pytest.raises(FrozenInstanceError):
        ctx.attempt = 2  # type: ignore[misc]
    assert "lease_token" not in repr(ctx)


def test_a_test_requests_the_end_or_ends_the_lease() -> None:
    ctx = context()
    helpers = ctx.cancel_token.child()
    ctx.cancel_token.cancel()
    assert ctx.cancelled
    ctx.check_lease()
    with pytest.raises(Cancelled):
        helpers.check()
    ctx = context(execution_id=7)
    ctx.lose_lease()
    with pytest.raises(LeaseLost, match="execution 7"):
        ctx.check_lease()
    assert ctx.cancelled
    context().check_lease()


def test_values_that_no_execution_has_are_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        context(plan_time=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="cron"):
        context(trigger="cron")
    berlin = datetime(2030, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert context(plan_time=berlin).plan_time.isoformat() == "2030-01-01T00:00:00+00:00"
    assert context(plan_time=datetime(2030, 1, 1, tzinfo=UTC)) == context()
