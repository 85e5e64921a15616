"""The log of a process: a short line for people on a terminal, otherwise JSON lines.

One renderer writes the events of structlog and the lines of the standard `logging` (those of
handlers and libraries). During an execution, each line contains job, scope, execution_id, plan_time
and attempt, and trace_id if it is traced. Passwords of connection strings are masked.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from cronledger.settings import MASK

EVENTS: Mapping[str, str] = {
    "abort_requested": "A second signal arrived. Running work is stopped now.",
    "app_registered": "The jobs of an App were applied, and this runner runs them.",
    "app_unregistered": "This runner no longer runs an App. Its jobs were `retired`, or `kept` for "
    "another runner.",
    "claim_commit_unknown": "The result of a claim's COMMIT was lost. Of its `executions`, "
    "those that were committed were `released`.",
    "claim_followup_failed": "The statements after a claim failed. The sweeper repeats them.",
    "database_accepted": "accept-database was called. This runner works again.",
    "database_awaited": "The database is unreachable at the start. The runner waits for it for up "
    "to `timeout_s`.",
    "database_clock_jumped": "The database's clock jumped by more than a second. Nothing is stolen "
    "or swept for one stale_timeout.",
    "database_reached": "The database that the start waited for is reachable.",
    "database_recovered": "The database is reachable again.",
    "database_unreachable": "The database is unreachable. Running work continues, and nothing new "
    "starts. Logged for each new `error`, and once a minute.",
    "declaration_warning": "A job is declared in a way that is probably a mistake. `problem` "
    "describes it.",
    "delivery_failed": "A `channel` did not accept a delivery of alerts. The delivery is retried "
    "until its attempts are used up.",
    "delivery_unwritten": "The end of a delivery could not be written for 30 s. The delivery is "
    "repeated when its lease is stale.",
    "diagnostics_crashed": "A defect of cronledger prevented the response to SIGUSR1.",
    "diagnostics_requested": "SIGUSR1 arrived. The event contains the state of the runner and the "
    "stacks of its tasks and threads.",
    "drain_deadline_passed": "The `executions` that did not end within drain_timeout are stopped.",
    "drain_requested": "A signal requested a drain. A second signal stops running work.",
    "embedded_started": "The embedded PostgreSQL was started, or a running one is shared.",
    "execution_cancelled": "An execution was cancelled on request.",
    "execution_crashed": "A defect of cronledger ended an execution, which is FAILED.",
    "execution_failed": "An attempt failed. It is retried after `retry_after_s`, if that is set. "
    "`not_retried` is the retry filter that prevents a retry.",
    "execution_released": "An unfinished execution was released, so that another runner can claim "
    "it.",
    "execution_started": "An execution was won, retried or stolen (`how`), and starts.",
    "execution_succeeded": "A handler succeeded. The execution is SUCCESS once that is written.",
    "execution_swept": "A lease expired and may not be stolen. The execution is FAILED, or "
    "CANCELLED if that was requested.",
    "finish_commit_unknown": "The result of a COMMIT that ends an execution was lost. The runner "
    "reads it from the ledger.",
    "handler_not_stopped": "A sync handler was requested to stop and continues. It keeps its slot.",
    "health_listening": "/healthz, /readyz and /diagnostics listen on this address.",
    "heartbeats_crashed": "A defect of cronledger interrupted the renewal of leases, which is "
    "retried.",
    "heartbeats_failed": "Leases cannot be renewed. The handlers of expired leases are stopped.",
    "heartbeats_resumed": "Leases are renewed again.",
    "job_broken": "A job cannot be planned because of `error`. Nothing of it starts until it is "
    "edited.",
    "job_without_runner": "No live runner has the function of this job. Its executions wait.",
    "lease_expired": "A lease was not renewed in time. Its handler is stopped.",
    "lease_lost": "Another runner or an operator ended a lease. Late writes of its handler are "
    "refused.",
    "lifespan_failed": "A lifespan raised after it had yielded, or ended by itself. If the runner "
    "was working, it claims nothing more for this App.",
    "lifespan_not_closed": "A lifespan was cancelled because it did not end in time. `ended`: "
    "whether it has ended since.",
    "listen_failed": "Notifications cannot be received. The runner polls every poll_interval. "
    "Logged for each new `error`, and once a minute.",
    "listen_restored": "Notifications are received again.",
    "migration_applied": "A migration was applied.",
    "migration_pending": "A migration waits for `cronledger migrate`, which is safe once no older "
    "code runs.",
    "orphans_cancelled": "Waiting executions of retired or deleted jobs were CANCELLED.",
    "other_database_found": "The database was restored or cloned. Nothing is claimed or swept "
    "until accept-database is called. Running work continues.",
    "other_ledger_found": "The DSN leads to a different ledger than at the start. The runner does "
    "nothing there, and its leases expire. `reason` names both ledgers.",
    "outcome_dropped": "The end of an execution could not be stored.",
    "outcome_refused": "The database refused the end of an execution. An error was stored instead.",
    "own_ledger_found": "The DSN leads to the runner's own ledger again.",
    "partitions_maintained": "A partition of executions was created or dropped, or skips were "
    "pruned.",
    "pause_ended": "A pause reached its end.",
    "ping_dropped": "A ping was not sent, because too many pings of its check were waiting, or the "
    "runner stopped.",
    "ping_failed": "A ping failed three times, or the check refused it. The execution is not "
    "affected.",
    "planner_crashed": "A defect of cronledger prevented the planning of a job. Nothing of it "
    "starts.",
    "planning_delegated": "The number of live runners with newer tzdata or croniter, or of those "
    "that are `able` to plan, has changed. They plan the jobs that depend on these versions.",
    "planning_taken_over": "The runners with newer tzdata or croniter (`of`) did not plan a due "
    "schedule that was left to them. This runner plans it until they check in again.",
    "runner_draining": "The runner stops claiming, and waits for running work for up to "
    "`timeout_s`.",
    "runner_started": "The runner is registered and polls for work.",
    "runner_stopped": "The runner has ended. The event counts the executions that `finished` "
    "during the drain, were `released` or `failed` at its deadline, or are `unfinished`.",
    "scope_provider_failed": "A scope provider raised, timed out or returned an invalid result. "
    "The job keeps its scopes.",
    "scopes_changed": "Scopes appeared, returned or were retired.",
    "scopes_not_stored": "The result of a scope provider could not be stored, because of a lock or "
    "of an invalid scope. It is called again a minute later.",
    "sentry_check_in_failed": "The SDK of Sentry raised an error. The execution is not affected.",
    "sentry_monitor_unsupported": "Sentry does not support the schedule of this job, so the runner "
    "sends no check-ins for it. Logged once for each job.",
    "server_not_durable": "These settings of the server are `off`. A crash of its host may lose or "
    "corrupt committed data.",
    "service_manager_away": "The service manager (NOTIFY_SOCKET) did not accept a message. It may "
    "treat the process as not started, or as stuck.",
    "setting_unknown": "An environment variable that begins with CRONLEDGER_ is not a setting.",
    "slots_saturated": "All slots are in use. Due executions wait.",
    "source_applied": "The jobs of the source were applied to the ledger.",
    "source_refused": "A newer deploy of this source was applied before. Its jobs stay unchanged.",
    "span_failed": "OpenTelemetry raised an error. The execution or the enqueuing call is not "
    "affected, but its span may be missing.",
    "step_failed": "A step of a loop failed, and is retried.",
    "wait_cannot_listen": "A client that waits for executions receives no notifications of their "
    "ends. It polls, and connects again.",
    "web_act_failed": "The database did not confirm an action of the web page.",
    "web_database_away": "The database is unreachable at the start of the web page, which states "
    "this and recovers by itself.",
    "metrics_read_failed": "The metrics of the ledger could not be read, so cronledger_up is 0. "
    "Logged once until they are read again.",
    "web_read_failed": "A panel of the web page could not be read. It shows its last data. Logged "
    "once until it is read again.",
    "web_verify_failed": "A `run` of verify that was started on the web page failed.",
}
"""Every event that this package logs, and its meaning."""

FIELDS = ("job", "scope_kind", "scope", "execution_id", "plan_time", "attempt", "runner")
"""The names of the fields of an execution. Outside of executions, a format needs defaults."""

Format = Literal["auto", "console", "json"]

_FIRST = ("time", "level", "event", "job", "scope", "execution_id", "plan_time", "attempt")
_USER = re.compile(r"(?<=://)([^\s:@/?#]*):\S*@")
_ROW = re.compile(r"(Failing row contains \()(.*\)|.*)")  # it may contain a lease_token
_PASSWORD = re.compile(r"(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&]+)")
_WORDS = {
    "execution_succeeded": "done",
    "execution_failed": "failed",
    "execution_cancelled": "cancelled",
    "execution_released": "released",
    "execution_swept": "swept",
}
_COLOURS = {"debug": "2", "warning": "33", "error": "31", "critical": "31"}
_RESET = "\x1b[0m"


def configure(form: Format, level: str, stream: TextIO | None = None) -> None:
    """Write every log line of this process to `stream` (standard error) in that form."""
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        scrub,
    ]
    renderer = renderer_of(form, stream)
    written = steady(stream)
    structlog.configure(
        processors=[*before, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(written),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(written)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *before[:3]],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                scrub,
                renderer,
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=threshold, force=True)
    # psycopg warns about every broken connection, which `database_unreachable` reports once.
    logging.getLogger("psycopg").setLevel(logging.ERROR)


def renderer_of(form: Format, stream: TextIO) -> Processor:
    """Return a renderer of events, in the form that fits `stream`."""
    on_terminal = stream.isatty()
    if form == "json" or (form == "auto" and not on_terminal):
        return json_line()
    return ConsoleLine(colours=on_terminal and not os.environ.get("NO_COLOR"))


def steady(stream: TextIO) -> Any:
    """Return `stream`, wrapped so that a failure to write raises nothing."""
    return _SafeStream(stream)


class _SafeStream:
    """A stream that cannot fail, because a full disk or a closed pipe must not stop the engine."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            return 0
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def scrub(_: object, __: str, event: EventDict) -> EventDict:
    """Mask passwords of connection strings, and rows that PostgreSQL quotes, in every value."""
    for key, value in event.items():
        if isinstance(value, str) and ("://" in value or "assword" in value.lower()):
            event[key] = _PASSWORD.sub(rf"\g<1>{MASK}", _USER.sub(rf"\1:{MASK}@", value))
        if isinstance(value, str) and "Failing row contains" in value:
            event[key] = _ROW.sub(rf"\1{MASK})", event[key])
    return event


def json_line() -> Callable[[Any, str, EventDict], str]:
    """Return a renderer of JSON objects, which begin with the common keys and the execution."""
    render = structlog.processors.JSONRenderer(ensure_ascii=False)

    def line(logger: Any, name: str, event: EventDict) -> str:
        first = {key: event.pop(key) for key in _FIRST if key in event}
        return str(render(logger, name, {**first, **event}))

    return line


class ConsoleLine:
    """A renderer of lines: `12:00:05 won  report  plan 12:00:00Z  #123`, with times in UTC."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def __call__(self, _: object, __: str, event: EventDict) -> str:
        name = str(event.pop("event", ""))
        level = str(event.pop("level", "info"))
        time = str(event.pop("time", ""))[11:19]
        traceback = event.pop("exception", None)
        word = str(event.pop("how", name)) if name == "execution_started" else _WORDS.get(name)
        title = word or (name.replace("_", " ") if name in EVENTS else name)
        parts = [f"{title:<10}", *_of_execution(event)]
        parts += [f"{key}={_text(value)}" for key, value in event.items() if value is not None]
        line = f"{time} {self._painted(name, level, '  '.join(parts).rstrip())}"
        return line if traceback is None else f"{line}\n{traceback}"

    def _painted(self, name: str, level: str, text: str) -> str:
        colour = "32" if name == "execution_succeeded" else _COLOURS.get(level)
        if not self._colours or colour is None:
            return text
        return f"\x1b[{colour}m{text}{_RESET}"


def _of_execution(event: EventDict) -> list[str]:
    """Remove from the event what identifies the execution, and return it as text."""
    job, scope = event.pop("job", None), event.pop("scope", None)
    plan_time, number = event.pop("plan_time", None), event.pop("execution_id", None)
    attempt, trigger = event.pop("attempt", None), event.pop("trigger", None)
    event.pop("logger", None)
    parts = []
    if job is not None:
        parts.append(f"{job if scope in (None, 'global') else f'{job}[{scope}]':<16}")
    if plan_time is not None:
        parts.append(f"plan {str(plan_time)[11:19]}Z")
    if number is not None:
        parts.append(f"#{number}")
    if attempt not in (None, 1):
        parts.append(f"attempt {attempt}")
    if trigger not in (None, "schedule"):
        parts.append(str(trigger))
    # A handler may log values of any type under these names.
    if isinstance(length := event.get("duration_ms"), int):
        del event["duration_ms"]
        parts.append(f"in {length} ms" if length < 1000 else f"in {length / 1000:.1f} s")
    if isinstance(later := event.get("retry_after_s"), float):
        del event["retry_after_s"]
        parts.append(f"again in {later:g} s")
    return parts


def as_text(event: EventDict) -> str:
    """Return an event as one line: its name, then its values."""
    values = (f"{key}={_text(x)}" for key, x in event.items() if key != "event" and x is not None)
    return " ".join([str(event.get("event", "")), *values])


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    text = str(value)
    return repr(text) if not text or any(c.isspace() for c in text) else text
