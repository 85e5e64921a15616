"""The words that `executions.error_code` contains, with their meanings."""

from collections.abc import Mapping
from enum import StrEnum

CODE_LENGTH = 100


class ErrorCode(StrEnum):
    """`executions.error_code`, except for the codes that `Discard` and workers choose."""

    HANDLER_ERROR = "handler_error"
    RETRY_REQUESTED = "retry_requested"
    DISCARDED = "discarded"
    TIMEOUT = "timeout"
    STALE_TIMEOUT = "stale_timeout"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"
    CANCELLED = "cancelled"
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    NOT_STARTED = "not_started"
    HTTP_STATUS = "http_status"
    PAYLOAD_INVALID = "payload_invalid"
    NOT_READY = "not_ready"
    UPSTREAM = "upstream"
    REPORTED = "reported"
    NOT_ENDED = "not_ended"
    RESULT_INVALID = "result_invalid"
    RESULT_TOO_LARGE = "result_too_large"
    RESULT_CHANGED = "result_changed"
    WINDOW_PROCESSED = "window_processed"
    DELIVERY_FAILED = "delivery_failed"
    CHANNEL_INVALID = "channel_invalid"


ERROR_MEANINGS: Mapping[ErrorCode, str] = {
    ErrorCode.HANDLER_ERROR: "The handler raised. `error_msg` has class, text and traceback.",
    ErrorCode.RETRY_REQUESTED: "The handler raised `Retry`.",
    ErrorCode.DISCARDED: "The handler raised `Discard` with an empty code. Never retried.",
    ErrorCode.TIMEOUT: "The attempt ran longer than `run_timeout` and was stopped.",
    ErrorCode.STALE_TIMEOUT: "The lease expired: its runner died, stalled, or could not reach the "
    "database while another replica could. The end of the work is unknown. Never retried.",
    ErrorCode.SHUTDOWN: "The runner drained, and the work did not end within `drain_timeout`.",
    ErrorCode.LEASE_LOST: "The runner stopped the handler because it could not keep the lease, for "
    "example during an outage of the database. The end of the work is known.",
    ErrorCode.CANCELLED: "An operator requested cancellation, or a newer plan_time replaced the "
    "execution.",
    ErrorCode.EXIT_CODE: "A command exited with a status other than 0.",
    ErrorCode.SIGNAL: "A signal that the runner did not send killed the command.",
    ErrorCode.NOT_STARTED: "The work could not be started, and no part of it ran.",
    ErrorCode.HTTP_STATUS: "The response had an unexpected status.",
    ErrorCode.PAYLOAD_INVALID: "The handler does not accept the payload. Never retried.",
    ErrorCode.NOT_READY: "The handler raised `NotReady`, or failed with one of `not_ready_on`, "
    "until `wait_at_most` was over. Never retried.",
    ErrorCode.UPSTREAM: "A backfill waited for the jobs that its job requires, and `wait_at_most` "
    "is over. It did not start.",
    ErrorCode.REPORTED: "The report of an observed run states a failure without an exit status.",
    ErrorCode.NOT_ENDED: "No end of an observed run was reported within `run_timeout` after its "
    "start. The end of the work is unknown. An end that is reported later replaces this one, which "
    "then is an earlier attempt.",
    ErrorCode.RESULT_INVALID: "On a SUCCESS: the result is not JSON, and was not stored.",
    ErrorCode.RESULT_TOO_LARGE: "On a SUCCESS: the result is longer than `max_result_bytes`, and "
    "was not stored.",
    ErrorCode.RESULT_CHANGED: "On a SUCCESS: the result contained NUL characters or halves of "
    "surrogate pairs, which PostgreSQL cannot store, and was stored without them.",
    ErrorCode.WINDOW_PROCESSED: "While it waited, a later execution succeeded whose window "
    "contains its own. It never ran.",
    ErrorCode.DELIVERY_FAILED: "The channel did not accept a delivery of alerts.",
    ErrorCode.CHANNEL_INVALID: "The replica cannot read the declared channel. Never retried.",
}
