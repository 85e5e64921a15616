"""A Context that belongs to no runner, for unit tests that call a handler as a plain function."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from cronledger.declaring.app import Context
from cronledger.declaring.cancellation import CancelToken
from cronledger.rules.model import Trigger

PLAN_TIME = datetime(2030, 1, 1, tzinfo=UTC)


class _Lease:
    held = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeContext(Context):
    """A `Context` whose lease a test can end. `ctx.cancel_token.cancel()` requests its end."""

    _lease: _Lease = field(repr=False, compare=False)

    def lose_lease(self) -> None:
        """End the lease: `check_lease` raises LeaseLost from now on, and `cancelled` is true."""
        self._lease.held = False
        self.cancel_token.cancel()


def context(
    job: str = "job",
    payload: Any = None,
    *,
    resources: Any = None,
    plan_time: datetime = PLAN_TIME,
    trigger: Trigger | str = Trigger.SCHEDULE,
    attempt: int = 1,
    scope_kind: str = "global",
    scope_id: str = "global",
    execution_id: int = 1,
    runner_id: str = "test",
) -> FakeContext:
    """Return a Context for calling a handler in a test without a database.

    Its lease is held until `lose_lease`. `transaction()` raises RuntimeError, because that needs a
    runner: use the fixture `ledger`. Raises ValueError for a `plan_time` without a time zone and
    for an unknown `trigger`.
    """
    if plan_time.utcoffset() is None:
        raise ValueError(f"plan_time={plan_time!r} has no time zone; add tzinfo=UTC")
    lease = _Lease()
    return FakeContext(
        execution_id=execution_id,
        job=job,
        scope_kind=scope_kind,
        scope_id=scope_id,
        plan_time=plan_time.astimezone(UTC),
        trigger=Trigger(trigger),
        attempt=attempt,
        payload=payload,
        lease_token=UUID(int=execution_id),
        runner_id=runner_id,
        cancel_token=CancelToken(lambda: not lease.held),
        resources=resources,
        _held=lambda: lease.held,
        _lease=lease,
    )
