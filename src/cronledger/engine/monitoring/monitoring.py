"""What is reported of executions and of the ledger, and when."""

from itertools import chain
from time import monotonic
from uuid import NAMESPACE_URL, UUID, uuid5

from cronledger.engine.lease import Lease
from cronledger.engine.monitoring.ping import Ping
from cronledger.engine.monitoring.pings import Pings
from cronledger.engine.monitoring.sentry import SentryCheckIns
from cronledger.ledger.rows import CheckInReply, Swept
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.model import Status, Trigger
from cronledger.rules.outcome import Outcome

LEDGER_SECONDS = 60.0
"""The shortest time between two pings for the ledger."""
BODY_CHARACTERS = 10_000
"""The end of an error and its output that a ping contains."""


class Monitoring:
    """Reports the starts and ends of attempts, and that the ledger can be read and written.

    `ledger_url`: the check of the ledger; None: there is none. `sentry`: None: no check-ins.
    """

    def __init__(self, pings: Pings, ledger_url: str | None, sentry: SentryCheckIns | None) -> None:
        self._pings = pings
        self._ledger_url = ledger_url
        self._sentry = sentry
        self._next_at = 0.0

    def started(self, lease: Lease) -> None:
        """Report that an attempt has started."""
        claimed, job = lease.claimed, lease.job
        if job.ping is not None:
            self._pings.put(Ping(job.ping, "start", _run(claimed.id, claimed.attempt)))
        scheduled = claimed.trigger == Trigger.SCHEDULE
        if scheduled and claimed.attempt == 1 and (sentry := self._active_sentry()) is not None:
            sentry.started(job, claimed.key.scope, _run(claimed.id, 1).hex)

    def ended(self, lease: Lease, outcome: Outcome, *, release: bool, duration_ms: int) -> None:
        """Report that the end of an attempt is committed. `release`: it is not its end."""
        claimed, job = lease.claimed, lease.job
        retried = release or outcome.retry_after is not None
        if job.ping is not None:
            signal = "log" if retried else _signal(outcome)
            run = _run(claimed.id, claimed.attempt)
            self._pings.put(Ping(job.ping, signal, run, _body(outcome, release=release)))
        scheduled = claimed.trigger == Trigger.SCHEDULE
        if scheduled and not retried and (sentry := self._active_sentry()) is not None:
            sentry.ended(
                job, claimed.key.scope, _run(claimed.id, 1).hex,
                ok=outcome.status is Status.SUCCESS, seconds=duration_ms / 1000,
            )  # fmt: skip

    def _active_sentry(self) -> SentryCheckIns | None:
        """Return where check-ins are sent; None: nowhere, so that no id has to be computed."""
        return self._sentry if self._sentry is not None and self._sentry.active else None

    def swept(self, row: Swept) -> None:
        """Report an execution whose runner is gone, and which the sweeper has ended."""
        if row.ping is not None:
            signal = "fail" if row.status == Status.FAILED else "log"
            body = f"{ErrorCode.STALE_TIMEOUT}: runner {row.runner_id} did not extend its lease"
            self._pings.put(Ping(row.ping, signal, _run(row.id, row.attempt), body))

    def checked_in(self, reply: CheckInReply) -> None:
        """Report that the ledger accepted a write, at most once a minute."""
        if reply.refused is not None or self._ledger_url is None:
            return
        if monotonic() >= self._next_at:
            self._next_at = monotonic() + LEDGER_SECONDS
            self._pings.put(Ping(self._ledger_url))


def _run(execution_id: int, attempt: int) -> UUID:
    """Return the id of an attempt for services outside. Every runner finds the same one."""
    return uuid5(NAMESPACE_URL, f"cronledger:{execution_id}:{attempt}")


def _signal(outcome: Outcome) -> str:
    """Return the last part of the address for the end of an execution."""
    if outcome.status is Status.SUCCESS:
        return ""
    if outcome.status is Status.CANCELLED:
        return "log"
    if outcome.error_code == ErrorCode.EXIT_CODE:
        for cause in chain.from_iterable(outcome.causes):
            if cause.isdecimal() and 1 <= int(cause) <= 255:
                return cause
    return "fail"


def _body(outcome: Outcome, *, release: bool) -> str:
    if outcome.status is Status.SUCCESS:
        return ""
    head = "released: another attempt follows" if release else outcome.status.value
    parts = [head, f"{outcome.error_code}: {outcome.error_msg}", outcome.output or ""]
    return "\n".join(part for part in parts if part)[-BODY_CHARACTERS:]
