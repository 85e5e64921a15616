"""The outcome of an attempt that has to be written."""

from dataclasses import dataclass, replace
from uuid import UUID

from cronledger.engine.lease import Lease
from cronledger.engine.log_throttle import reason
from cronledger.ledger.rows import Ending, LeaseState, Postponement
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.model import ScopeKey, Status
from cronledger.rules.outcome import Outcome, clean_text
from cronledger.tracing.interface import AttemptSpan


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of an attempt that has to be written.

    `release`: the execution returns to PENDING instead, for the reason in `outcome`. That of a
    handler that is not ready (`outcome.postpone`) does so as well, unless its wait is over, which
    the ledger decides: `as_written` sets `release` then. `stripped`:
    the ledger refused its values, so it has none. `span`: that of the attempt, which ends with the
    outcome that the ledger has given to it; None without traces. `has_chunks`: chunks of its output
    were written.
    """

    lease: Lease
    outcome: Outcome
    duration_ms: int
    release: bool = False
    stripped: bool = False
    span: AttemptSpan | None = None
    has_chunks: bool = False

    @property
    def token(self) -> UUID:
        return self.lease.token

    @property
    def schedule(self) -> tuple[ScopeKey, str]:
        """The schedule that may have waited for this execution, and its queue."""
        return self.lease.claimed.key.scope, self.lease.queue

    @property
    def ends_chunks(self) -> bool:
        """Whether the row gets the output, so that its chunks are deleted."""
        return self.has_chunks and not self.release and self.postponement is None

    @property
    def row(self) -> Ending:
        """The row for the statement `finish_executions`."""
        o, claimed = self.outcome, self.lease.claimed
        return Ending(
            claimed.key, claimed.token, o.status.value, o.result_json, o.rows_affected, o.output,
            o.error_code, o.error_msg, self.duration_ms, o.retry_after, o.watermark, o.covers,
            self.lease.trace_id, claimed.window_start is not None,
        )  # fmt: skip

    @property
    def postponement(self) -> Postponement | None:
        """The row for the statement `postpone_executions`; None: its handler was ready."""
        o, claimed = self.outcome, self.lease.claimed
        if o.postpone is None or self.release:
            return None
        return Postponement(claimed.key, claimed.token, o.postpone, o.error_msg, self.duration_ms)

    def without_values(self, error: Exception) -> "Ended":
        """Return the same end without the values that the ledger refuses with this error.

        A SUCCESS stays one, because the handler has done its work and must not run again.
        """
        succeeded = self.outcome.status is Status.SUCCESS
        code = self.outcome.error_code if succeeded else None
        outcome = replace(
            self.outcome, result_json=None, output=None, rows_affected=None,
            error_code=code or ErrorCode.RESULT_INVALID,
            error_msg=clean_text(f"the outcome could not be stored: {reason(error)}", 4000),
        )  # fmt: skip
        return replace(self, outcome=outcome, stripped=True)

    def as_written(self, status: str) -> "Ended":
        """Return the end with the status that the ledger has given to the execution.

        A requested cancel, which the runner may not know of yet, turns FAILED, and the PENDING of a
        release, into CANCELLED.
        """
        if self.outcome.postpone is not None and status == Status.PENDING:
            return replace(self, release=True)
        if status != Status.CANCELLED or self.outcome.status is not Status.FAILED:
            return self
        outcome = replace(self.outcome, status=Status.CANCELLED, retry_after=None)
        return replace(self, outcome=outcome, release=False)

    def is_committed(self, state: LeaseState) -> bool:
        """Return whether this state of the row shows that this outcome was committed before."""
        if state.error_code != self.outcome.error_code:
            return False
        if self.release or not state.ours:
            # A release, or a failure that is retried since: the row has another token or none, and
            # only the error_code shows who wrote it. A SUCCESS keeps its token, so it is not one.
            return state.error_code is not None
        cancelled = self.outcome.status is Status.FAILED and state.status == Status.CANCELLED
        return state.status == self.outcome.status or cancelled
