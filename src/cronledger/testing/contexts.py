"""A Context that belongs to no runner, for unit tests that call a handler as a plain function."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from cronledger.declaring.app import Context
from cronledger.declaring.cancellation import CancelToken
from cronledger.rules.model import Trigger, Window

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
    window_start: datetime | None = None,
) -> FakeContext:
    """Return a Context for calling a handler in a test without a database.

    Its lease is held until `lose_lease`. With `window_start` it has a window, which ends at
    `plan_time`. `transaction()` raises RuntimeError, because that needs a runner: use the fixture
    `ledger`. Raises ValueError for a time without a time zone and for an unknown `trigger`.
    """
    for name, given in (("plan_time", plan_time), ("window_start", window_start)):
        if given is not None and given.utcoffset() is None:
            raise ValueError(f"{name}={given!r} has no time zone; add tzinfo=UTC")
    at = plan_time.astimezone(UTC)
    lease = _Lease()
    return FakeContext(
        execution_id=execution_id,
        job=job,
        scope_kind=scope_kind,
        scope_id=scope_id,
        plan_time=at,
        window=None if window_start is None else Window(window_start.astimezone(UTC), at),
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
