"""Manual steps: one call runs everything that is due now, as the loops would."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any

from cronledger.engine.alerting.deliveries import Deliveries
from cronledger.engine.claiming.dispatcher import Dispatcher
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.maintenance.alerts import Alerts
from cronledger.engine.maintenance.check_in import CheckIn
from cronledger.engine.maintenance.gates import Gates
from cronledger.engine.maintenance.scope_providers import ScopeProviders
from cronledger.engine.maintenance.sweeper import Sweeper
from cronledger.engine.running.ended import Ended
from cronledger.engine.running.executor import Executor
from cronledger.engine.running.finisher import Finisher

MOST_ROUNDS = 10_000


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt and its outcome, as recorded in the ledger.

    `status` is that of the execution: SUCCESS, FAILED, CANCELLED, or PENDING if it was released.
    """

    execution_id: int
    job: str
    scope_id: str
    plan_time: datetime
    trigger: str
    attempt: int
    status: str
    result: Any
    error_code: str | None
    error_msg: str | None


@dataclass(slots=True)
class ManualSteps:
    """Steps the components of a runner whose loops are not driven, except for the finisher's."""

    dispatcher: Dispatcher
    executor: Executor
    finisher: Finisher
    gates: Gates
    sweeper: Sweeper
    scopes: ScopeProviders
    alerts: Alerts
    deliveries: Deliveries
    check_ins: CheckIn
    clock: DatabaseClock
    _ran: list[Ran] | None = None

    def ended(self, ended: Sequence[Ended]) -> None:
        """Note that these outcomes are committed."""
        if self._ran is not None:
            self._ran.extend(map(_ran, ended))

    async def step(self) -> tuple[Ran, ...]:
        """See `Replica.step`. Raises RuntimeError if executions keep making others due."""
        if self._ran is not None:
            raise RuntimeError("a step is already running; await it first")
        ran: list[Ran] = []
        self._ran = ran
        try:
            await self.check_ins.step()
            self.sweeper.full_round()
            await self.sweeper.step()
            await self.scopes.step()
            self.dispatcher.search_all()
            await self._rounds(ran)
            if self.alerts.watching:
                await self.alerts.raise_all()
                await self.deliveries.run_all()
            return tuple(ran)
        finally:
            self._ran = None

    async def _rounds(self, ran: list[Ran]) -> None:
        began = self.clock.at(monotonic())
        for _ in range(MOST_ROUNDS):
            before = len(ran)
            delay = await self.dispatcher.step()
            await self.executor.wait_idle()
            await self.finisher.wait_empty()
            opened = await self.gates.check_all()
            fresh = ran[before:]
            if opened:
                continue
            if not fresh and delay != 0:
                return
            if fresh and all(x.plan_time > began and x.trigger == "schedule" for x in fresh):
                return  # only schedules that came due meanwhile
        raise RuntimeError(
            f"work is still due after {MOST_ROUNDS} rounds; check for handlers that keep making "
            "each other due"
        )


def _ran(ended: Ended) -> Ran:
    claimed, outcome = ended.lease.claimed, ended.outcome
    return Ran(
        execution_id=claimed.id,
        job=claimed.key.job_name,
        scope_id=claimed.key.scope_id,
        plan_time=claimed.key.plan_time,
        trigger=claimed.trigger,
        attempt=claimed.attempt,
        status="PENDING" if ended.release else outcome.status.value,
        result=None if outcome.result_json is None else json.loads(outcome.result_json),
        error_code=outcome.error_code,
        error_msg=outcome.error_msg,
    )
