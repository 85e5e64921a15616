"""What a drain reports: how the executions ended that were running when it began."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cronledger.engine.diagnostics import Active
from cronledger.engine.executor import Executor
from cronledger.engine.finisher import Ended, Finisher
from cronledger.logger import get_logger
from cronledger.rules.outcome import ErrorCode

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DrainReport:
    """How the executions ended that were running when a drain began.

    `finished`: by themselves; `given_back`: PENDING, for another runner; `failed`: FAILED
    `shutdown`; `unfinished`: their end is not written, or their handler did not end. `cut_off`:
    those that were still running at the deadline, as they were then.
    """

    finished: int = 0
    given_back: int = 0
    failed: int = 0
    unfinished: int = 0
    cut_off: tuple[Active, ...] = ()


@dataclass(slots=True)
class Draining:
    """Gathers the ends of one drain."""

    runner: str
    executor: Executor
    finisher: Finisher
    _ended: list[Ended] = field(default_factory=list, init=False)
    _cut_off: tuple[Active, ...] = field(default=(), init=False)

    def ended(self, ended: Sequence[Ended]) -> None:
        """These are written."""
        self._ended.extend(ended)

    def deadline(self, left: Sequence[Active]) -> None:
        """What has not ended by the deadline is stopped now."""
        self._cut_off = tuple(left)
        if not left:
            return
        log.warning(
            "drain_deadline_passed",
            runner=self.runner,
            stopping=len(left),
            executions=[
                {
                    "execution_id": x.execution_id,
                    "job": x.job,
                    "scope": x.scope_id,
                    "age_s": x.age_s,
                }
                for x in left
            ],
        )

    def report(self) -> DrainReport:
        """What became of all."""
        given_back = sum(ended.give_back for ended in self._ended)
        failed = sum(
            not ended.give_back and ended.outcome.error_code == ErrorCode.SHUTDOWN
            for ended in self._ended
        )
        # An abandoned handler goes on though its FAILED is written; it counts once, as that.
        written = {ended.lease.token for ended in self._ended}
        left = {x.lease.token for x in self.executor.executions()} - written
        return DrainReport(
            finished=len(self._ended) - given_back - failed,
            given_back=given_back,
            failed=failed,
            unfinished=max(len(left), self.finisher.waiting),
            cut_off=self._cut_off,
        )
