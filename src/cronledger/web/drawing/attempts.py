"""The attempts of executions, as the timeline shows them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from cronledger.ledger.reports import Row
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.model import ScopeKey

_CRASHED = "runner_crashed"
_RELEASED = (ErrorCode.SHUTDOWN, ErrorCode.LEASE_LOST)


class AttemptState(Enum):
    """How an attempt ended. The value is its name in the stylesheet and its word."""

    SUCCEEDED = "succeeded"
    RUNNING = "running"
    FAILED = "failed"
    CRASHED = "crashed"
    RELEASED = "released"
    CANCELLED = "cancelled"


OF_STATUS = {
    "SUCCESS": AttemptState.SUCCEEDED, "RUNNING": AttemptState.RUNNING,
    "FAILED": AttemptState.FAILED, "CANCELLED": AttemptState.CANCELLED,
}  # fmt: skip
"""The state of the last attempt by the status of its execution."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt. `end` None: it runs.

    After a crash, `end` is when its lease was last renewed. `stolen`: it took over a stale lease.
    """

    id: int
    key: ScopeKey
    plan_time: datetime
    number: int
    runner: str
    queue: str
    start: datetime
    end: datetime | None
    state: AttemptState
    error_code: str | None
    stolen: bool

    def group(self, by: str) -> str:
        """Return the name of its runner or of its queue."""
        return self.queue if by == "queue" else self.runner


def attempts_of(rows: Iterable[Row], since: datetime, until: datetime) -> list[Attempt]:
    """Return the attempts of these executions that ran in [since, until), by their start."""
    found = [
        one
        for row in rows
        for one in _attempts(row)
        if one.start < until and (one.end is None or one.end >= since)
    ]
    return sorted(found, key=lambda one: (one.start, one.id, one.number))


def _attempts(row: Row) -> Iterator[Attempt]:
    # As in the view `attempts`: one that was released and CANCELLED at once is listed, and again
    # after a retry by hand.
    ended: list[dict[str, Any]] = []
    for entry in row["attempts"]:
        if not ended or ended[-1]["attempt"] != entry["attempt"]:
            ended.append(entry)
    is_listed = bool(ended) and ended[-1]["attempt"] == row["attempt"]
    has_last = row["status"] in OF_STATUS and row["started_at"] is not None and not is_listed
    stolen = False
    for entry in ended:
        yield _earlier(row, entry["attempt"], entry, stolen=stolen)
        stolen = entry.get("error_code") == _CRASHED
    if has_last:
        state, code = OF_STATUS[row["status"]], row["error_code"]
        end = None if state is AttemptState.RUNNING else row["finished_at"]
        if code == ErrorCode.STALE_TIMEOUT:
            state, end = AttemptState.CRASHED, row["heartbeat_at"] or row["started_at"]
        yield _attempt(
            row, row["attempt"], row["runner_id"] or "", row["started_at"], end, state, code,
            stolen=stolen,
        )  # fmt: skip


def _earlier(row: Row, number: int, entry: dict[str, Any], *, stolen: bool) -> Attempt:
    code = entry.get("error_code")
    start = datetime.fromisoformat(entry["started_at"])
    crashed = code in (_CRASHED, ErrorCode.STALE_TIMEOUT)
    end = entry.get("last_seen") if crashed else entry.get("ended_at") or entry.get("last_seen")
    state = (
        AttemptState.CRASHED if crashed
        else AttemptState.RELEASED if code in _RELEASED
        else AttemptState.CANCELLED if code == ErrorCode.CANCELLED
        else AttemptState.FAILED
    )  # fmt: skip
    return _attempt(
        row, number, entry.get("runner_id") or "", start,
        start if end is None else datetime.fromisoformat(end), state, code, stolen=stolen,
    )  # fmt: skip


def _attempt(  # noqa: PLR0917
    row: Row, number: int, runner: str, start: datetime, end: datetime | None,
    state: AttemptState, code: str | None, *, stolen: bool,
) -> Attempt:  # fmt: skip
    key = ScopeKey(row["job_name"], row["scope_kind"], row["scope_id"])
    return Attempt(
        row["id"], key, row["plan_time"], number, runner, row["queue"], start, end, state, code,
        stolen,
    )  # fmt: skip
