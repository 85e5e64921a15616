"""The outcome of an attempt: a value that the ledger can always store.

An `Outcome` contains no NUL, no lone surrogate, no NaN, and nothing beyond a limit. Work that ends
with a result that cannot be stored is a SUCCESS with a note, because it must not run again.
"""

import json
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from cronledger.rules import durations, retry_filters, storable
from cronledger.rules.error_codes import CODE_LENGTH, ErrorCode
from cronledger.rules.model import Job, Status
from cronledger.rules.retry_filters import NOT_RETRIED, Causes, one_cause

ERROR_LENGTH = 4_000
HEAD_LENGTH = 1_000
FRAMES = 30
RESULT_BYTES = 16 * 1024
LARGEST_COUNT = 2**63 - 1
LONGEST_WAIT = timedelta(days=36_525)


class AtClaim(Enum):
    """Stands for the watermark that was taken at the claim."""

    AT_CLAIM = "at_claim"


@dataclass(frozen=True, slots=True)
class Result:
    """A result with details, which a handler may return. The ledger stores `rows_affected`.

    `watermark`: the input up to which the work has succeeded; None: no input, so that the scope
    stays dirty and runs again. By default, all input that was enqueued before this attempt was
    claimed.
    """

    value: Any = None
    rows_affected: int | None = None
    watermark: int | AtClaim | None = AtClaim.AT_CLAIM


class Retry(Exception):  # noqa: N818 - public word
    """Raised by a handler to fail this attempt and retry it, if attempts are left.

    `after`: the time to wait (`"90s"`, seconds, a timedelta); None: the job's `retry_backoff`.
    Raises ValueError if `after` is not a duration, negative or longer than 100 years.
    """

    def __init__(
        self,
        after: timedelta | float | str | None = None,
        message: str = "the handler requested a retry",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.after = None if after is None else _wait(after)


class Discard(Exception):  # noqa: N818 - public word
    """Raised by a handler to fail this execution without a retry.

    `code` becomes `error_code` (cut to 100 characters), and `message` becomes `error_msg`.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


NOT_READY_AFTER = timedelta(minutes=1)


class NotReady(Exception):  # noqa: N818 - public word
    """Raised by a handler whose work cannot begin yet, such as for a file that is missing.

    The execution waits again, and the attempt does not count. After `after` (`"5m"`, seconds, a
    timedelta) the handler is called again, at the latest at the end of `wait_at_most`. If it is not
    ready then, the execution is FAILED. Raises ValueError as `Retry` does.
    """

    def __init__(
        self,
        after: timedelta | float | str = NOT_READY_AFTER,
        reason: str = "the handler is not ready",
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = _wait(after)


class LeaseLost(Exception):  # noqa: N818 - public word
    """The lease of this execution is lost. Stop, because the ledger refuses its result."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one attempt, as it is written.

    `asked_after`: the wait that a handler requested with `Retry`. `end_known`: the work has surely
    stopped. `final`: no further attempt, whatever is left. `retry_after`: the wait before the next
    attempt, which `decide` sets; None: never. `written`: it is committed already, together with the
    writes of the handler, and later requests do not change it. `covers`: the handler returned the
    `watermark` of its input; otherwise that of the claim applies. `causes`: the names of a failure,
    for the retry filters. `not_retried`: the filter that prevents a retry, which `decide` sets.
    `postpone`: the handler is not ready, and is called again after this wait.
    """

    status: Status
    result_json: str | None = None
    rows_affected: int | None = None
    output: str | None = None
    error_code: str | None = None
    error_msg: str | None = None
    asked_after: timedelta | None = None
    end_known: bool = True
    final: bool = False
    retry_after: timedelta | None = None
    written: bool = False
    watermark: int | None = None
    covers: bool = False
    causes: Causes = frozenset()
    not_retried: str | None = None
    postpone: timedelta | None = None


PLAIN_SUCCESS = Outcome(Status.SUCCESS, final=True)
"""The outcome of most executions: no result, no output, the watermark of the claim."""


class CleanJson(NamedTuple):
    """A value as JSON text, with a note if it is missing or was changed."""

    text: str | None
    error_code: ErrorCode | None = None
    error_msg: str | None = None


def success(value: Any, output: str | None = None, max_result_bytes: int = RESULT_BYTES) -> Outcome:
    """Return SUCCESS with `value`, or with that of a `Result`, as JSON.

    A value that cannot be stored, or that is larger than `max_result_bytes`, becomes NULL or is
    changed, and `error_code` and `error_msg` describe that. It stays SUCCESS.
    """
    if value is None and output is None:
        return PLAIN_SUCCESS
    result = value if isinstance(value, Result) else Result(value)
    stored = clean_json(result.value, max_result_bytes)
    rows, note = _bigint("rows_affected", result.rows_affected, 0)
    at_claim = result.watermark is AtClaim.AT_CLAIM
    # An invalid watermark covers nothing: work that is done twice is better than work that is lost.
    given = None if at_claim else result.watermark
    watermark, unusable = _bigint("watermark", given, -LARGEST_COUNT)
    note = note or unusable
    if note is not None:
        note = note if stored.error_msg is None else f"{stored.error_msg}; {note}"
        stored = CleanJson(stored.text, stored.error_code or ErrorCode.RESULT_INVALID, note)
    return Outcome(
        Status.SUCCESS,
        result_json=stored.text,
        rows_affected=rows,
        output=_output(output),
        error_code=stored.error_code,
        error_msg=stored.error_msg,
        final=True,
        watermark=watermark,
        covers=not at_claim,
    )


def failure(exc: BaseException, output: str | None = None) -> Outcome:
    """Return FAILED for an exception of a handler: `Retry`, `Discard`, `NotReady` and so on."""
    match exc:
        case Discard(code=code, message=message):
            known = clean_text(_shown(code, str), CODE_LENGTH).strip() or ErrorCode.DISCARDED
            text = _because(_shown(message, str) or known, exc)
            return failed(known, text, output, final=True)
        case Retry(after=after, message=message):
            text = _because(_shown(message, str), exc)
            return failed(ErrorCode.RETRY_REQUESTED, text, output, asked_after=after)
        case NotReady(after=after, reason=reason):
            text = _because(_shown(reason, str), exc)
            refused = failed(ErrorCode.NOT_READY, text, output, final=True)
            return replace(refused, postpone=after)
        case LeaseLost():
            return failed(ErrorCode.LEASE_LOST, _explained(exc), output)
        case _:
            causes = retry_filters.causes_of(exc)
            return failed(ErrorCode.HANDLER_ERROR, _explained(exc), output, causes=causes)


def failed(
    code: str,
    message: str,
    output: str | None = None,
    asked_after: timedelta | None = None,
    *,
    end_known: bool = True,
    final: bool = False,
    causes: Causes = frozenset(),
) -> Outcome:
    """Return FAILED with that code. The job decides about a retry, unless it is `final`."""
    return Outcome(
        Status.FAILED,
        output=_output(output),
        error_code=code,
        error_msg=clean_text(message, ERROR_LENGTH),
        asked_after=None if asked_after is None else min(asked_after, LONGEST_WAIT),
        end_known=end_known,
        final=final,
        causes=causes,
    )


def timed_out(run_timeout: timedelta, output: str | None = None, *, end_known: bool) -> Outcome:
    """Return FAILED for an attempt that was stopped after `run_timeout`.

    `end_known` is False for work that was requested to stop and has not ended.
    """
    text = f"stopped after run_timeout = {durations.format(run_timeout)}"
    return failed(ErrorCode.TIMEOUT, text + _unless(end_known), output, end_known=end_known)


def shutdown(output: str | None = None, *, end_known: bool) -> Outcome:
    """Return FAILED for work that the drain of its runner stopped.

    It is final if the end of the work is unknown. A reentrant execution is released instead.
    """
    text = "the runner shut down before the work ended" + _unless(end_known)
    return failed(ErrorCode.SHUTDOWN, text, output, end_known=end_known, final=not end_known)


def cancelled(output: str | None = None, *, by: str | None = None) -> Outcome:
    """Return CANCELLED, final, for work that ended on request."""
    text = clean_text(f"cancelled by {by}" if by else "cancelled", ERROR_LENGTH)
    return Outcome(
        Status.CANCELLED,
        output=_output(output),
        error_code=ErrorCode.CANCELLED,
        error_msg=text,
        final=True,
    )


def exited(returncode: int, output: str | None = None) -> Outcome:
    """Return the outcome of a command with this return code; -9: killed by signal 9."""
    if returncode == 0:
        return success(None, output)
    if returncode < 0:
        name = _signal_name(-returncode)
        causes = one_cause(name) if name else frozenset()
        text = f"killed by signal {-returncode}" + (f" ({name})" if name else "")
        return failed(ErrorCode.SIGNAL, text, output, causes=causes)
    causes = one_cause(str(returncode))
    return failed(ErrorCode.EXIT_CODE, f"exit status {returncode}", output, causes=causes)


def not_started(message: str) -> Outcome:
    """Return FAILED for work that did not start, such as a command that was not found."""
    return failed(ErrorCode.NOT_STARTED, message)


def lease_over(reason: str, output: str | None = None) -> Outcome:
    """Return FAILED for work that was stopped because its lease expired or was lost."""
    text = f"stopped because its lease could not be kept ({reason})"
    return failed(ErrorCode.LEASE_LOST, text, output)


def lease_expired(
    unrenewed: float, error: str | None, stale_timeout: timedelta, output: str | None = None
) -> Outcome:
    """Return FAILED for work that was stopped because its lease had not been renewed in time.

    `unrenewed`: the seconds since the last renewal. `error`: why renewals failed, or None if none
    was sent in time.
    """
    length = durations.format(timedelta(seconds=round(unrenewed)))
    why = "the process got no CPU time" if error is None else f"the ledger was unreachable: {error}"
    limit = durations.format(stale_timeout)
    text = (
        f"stopped because its lease was not renewed for {length} ({why}); attempts survive longer"
        f" outages with a stale_timeout longer than {limit}"
    )
    return failed(ErrorCode.LEASE_LOST, text, output)


def payload_invalid(message: str) -> Outcome:
    """Return FAILED, final, for a payload that the handler does not accept."""
    return failed(ErrorCode.PAYLOAD_INVALID, message, final=True)


def backoff(job: Job, attempt: int, share: float) -> timedelta:
    """Return the wait after `attempt`, 1 or more, failed. `share` of the jitter is in [0, 1)."""
    steps = job.retry_backoff
    return steps[min(attempt - 1, len(steps) - 1)] * (1 + job.retry_jitter * share)


def next_attempt(
    job: Job, attempt: int, max_attempts: int, outcome: Outcome, share: float
) -> timedelta | None:
    """Return the wait before the next attempt, or None if there is none.

    There is none if the attempt did not fail, is final, or was the last one, or if its end is
    unknown and its job is not reentrant. A wait that the handler requested replaces the backoff.
    The retry filters of the job may still prevent the attempt: see `decide`.
    """
    if outcome.status is not Status.FAILED or outcome.final or attempt >= max_attempts:
        return None
    if not (outcome.end_known or job.reentrant):
        return None
    return backoff(job, attempt, share) if outcome.asked_after is None else outcome.asked_after


def decide(outcome: Outcome, job: Job, attempt: int, max_attempts: int, share: float) -> Outcome:
    """Return `outcome` with its `retry_after`; it is final if there is none.

    A failure that matches `not_ready_on` becomes `not_ready`, with the wait in `postpone`.
    If a retry filter of the job prevents the next attempt, the last line of `error_msg` says that.
    """
    if outcome.final and outcome.retry_after is None:  # a success, for example
        return outcome
    if outcome.end_known and retry_filters.says_not_ready(
        job, outcome.error_code or "", outcome.causes
    ):
        waits = (outcome.asked_after, job.not_ready_after, NOT_READY_AFTER)
        after = next(wait for wait in waits if wait is not None)
        return replace(outcome, error_code=ErrorCode.NOT_READY, final=True, postpone=after)
    wait = next_attempt(job, attempt, max_attempts, outcome, share)
    filtered = None
    if wait is not None:
        filtered = retry_filters.refusal(job, outcome.error_code or "", outcome.causes)
    if filtered is None:
        return replace(outcome, retry_after=wait, final=wait is None)
    note = NOT_RETRIED + filtered
    text = clean_text(outcome.error_msg or "", ERROR_LENGTH - len(note) - 1)
    return replace(
        outcome, error_msg=f"{text}\n{note}", retry_after=None, final=True, not_retried=filtered
    )


def clean_text(text: str, limit: int | None = None, *, tail: bool = False) -> str:
    """Return `text` without NUL and lone surrogates, its first (`tail`: last) `limit` characters.

    `…` replaces what was cut.
    """
    clean = text.replace("\x00", "").encode("utf-8", "ignore").decode("utf-8")
    if limit is None or len(clean) <= limit:
        return clean
    if tail:
        return "…" + clean[len(clean) - limit + 1 :]
    return clean[: limit - 1] + "…"


def clean_json(value: Any, limit_bytes: int) -> CleanJson:
    """Return `value` as JSON text that `jsonb` accepts, of at most `limit_bytes` in UTF-8.

    Models, dataclasses, datetimes, UUIDs, Decimals and sets are written as pydantic writes them.
    NUL and lone surrogates are removed from strings, with a note. NaN and infinities are refused.
    """
    if value is None:
        return CleanJson(None)
    try:
        plain = to_jsonable_python(value)
        clean = _clean(plain)
        text = json.dumps(clean, allow_nan=False, ensure_ascii=False)
    except Exception as exc:  # noqa: BLE001 - a value's own serialiser may raise anything
        note = f"the result of type {type(value).__name__} is not JSON: {_shown(exc, str)}"
        return CleanJson(None, ErrorCode.RESULT_INVALID, clean_text(note, HEAD_LENGTH))
    size = len(text.encode("utf-8"))
    if size > limit_bytes:
        note = f"the result has {size} bytes of JSON; max_result_bytes = {limit_bytes}"
        return CleanJson(None, ErrorCode.RESULT_TOO_LARGE, note)
    if (unreadable := storable.beyond_readers(clean)) is not None:
        return CleanJson(None, ErrorCode.RESULT_INVALID, f"the result {unreadable}")
    if clean != plain:
        note = "NUL characters or halves of surrogate pairs were removed from the result"
        return CleanJson(text, ErrorCode.RESULT_CHANGED, note)
    return CleanJson(text)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def _output(output: str | None) -> str | None:
    return None if output is None else clean_text(output)


def _unless(end_known: bool) -> str:
    return "" if end_known else "; it was requested to stop and did not end: its end is unknown"


def _shown(value: object, form: Callable[[object], str] = repr) -> str:
    """Return `value` as text. Its own code may raise, and an int of 5,000 digits has no text."""
    try:
        return form(value)
    except Exception:  # noqa: BLE001 - it may raise anything
        return f"a {type(value).__name__} without text"


def _bigint(name: str, value: object, least: int) -> tuple[int | None, str | None]:
    """Return `value`, or None and a note if it cannot be stored."""
    if value is None:
        return None, None
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST_COUNT:
        return value, None
    kind = "count" if least == 0 else "bigint"
    return None, clean_text(f"{name} = {_shown(value)} is not a {kind}; not stored", HEAD_LENGTH)


def _explained(exc: BaseException) -> str:
    """Return class and text, which a list shows, and as much of the traceback as fits."""
    trace = traceback.TracebackException.from_exception(exc, limit=-FRAMES, compact=True)
    head = clean_text("".join(trace.format_exception_only()).strip(), HEAD_LENGTH)
    rest = clean_text("".join(trace.format()).strip(), ERROR_LENGTH - len(head) - 2, tail=True)
    return f"{head}\n\n{rest}"


def _because(message: str, exc: BaseException) -> str:
    """Return `message` with the traceback of the exception that was its cause, if there is one."""
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    if cause is None:
        return message
    head = clean_text(message, HEAD_LENGTH)
    return f"{head}\n\n{clean_text(_explained(cause), ERROR_LENGTH - len(head) - 2)}"


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _wait(after: timedelta | float | str) -> timedelta:
    if isinstance(after, str):
        wait = durations.parse(after)
    else:
        wait = after if isinstance(after, timedelta) else timedelta(seconds=after)
    if not timedelta(0) <= wait <= LONGEST_WAIT:
        raise ValueError(f"after={after!r}: a wait is 0 to 100 years long")
    return wait
