"""Explain why a job ran, or did not run, at a given time: one paragraph per scope."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from cronledger.audit.dates import read_dates
from cronledger.audit.walk import (
    Definition,
    clock_change,
    due_at,
    neighbours,
    walk,
)
from cronledger.explain import quotes
from cronledger.explain.durations import length
from cronledger.explain.firings import obstacle, skipped_by
from cronledger.ledger.reports import Reports, Row
from cronledger.rules import durations
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.instants import iso
from cronledger.rules.model import Job, ScopeKey
from cronledger.rules.retry_filters import NOT_RETRIED, split_note

_SHOWN_EXECUTIONS = 3
_TICK = timedelta(microseconds=1)
_SOON = timedelta(seconds=2)
_AT_ONCE = timedelta(seconds=1)
_CAUSES = {
    "superseded": "a newer plan_time ran instead",
    "calendar": "the calendar of the job excludes this day ({})",
    "upstream": "it waited for a job that it requires: {}",
    "host_absent": "no replica of the host had checked in by the end of grace",
    "not_reported": "no start was reported within grace",
}
"""The reasons of skips that need no further rows to be explained, with the detail of the skip."""
_SIDES = ("handler", "observed", "adopted_at", "returned_at")
"""The policies that decide which scheduler runs a plan_time."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation for one scope of a job in [`since`, `until`).

    `verdict`: `ran`, `running`, `failed`, `cancelled`, `pending`, `skipped`, `not_in_schedule`,
    `not_planned`, `before_its_time` (the scope did not exist yet), `not_kept` (older than the
    retention), `spec_error` or `missing`, which is a violation. `executions`: their ids.
    `blockers`: the ids of the executions that `text`, the paragraph, names as running meanwhile.
    `quoted`: what people and handlers wrote in it, such as reasons and the first lines of errors.

    The current state of a scope has the verdict `running`, `pending`, `overdue`, `paused`,
    `retired`, `spec_error`, or `idle` if nothing is due.
    """

    key: ScopeKey
    since: datetime
    until: datetime
    verdict: str
    text: str
    executions: tuple[int, ...] = ()
    blockers: tuple[int, ...] = ()
    quoted: tuple[str, ...] = ()


class Why:
    """Explains the plan_times of one job. Raises psycopg.Error.

    `revisions`: the history of the job that `Reports.history` returns, oldest first. Without
    `whole_messages`, only the first line of an error is shown, which has its type and its text.
    """

    def __init__(
        self, reports: Reports, revisions: Sequence[Row], *, whole_messages: bool = True
    ) -> None:
        self._reports = reports
        self._revisions = revisions
        self._whole_messages = whole_messages
        self._froms: list[datetime] = [row["effective_from"] for row in revisions]
        self._dates = read_dates(reports.calendar_rows(revisions))
        self._boots: Sequence[datetime] = ()
        self._quoted: set[str] = set()

    def explain(self, schedule: Row, since: datetime, until: datetime) -> Explanation:
        """Explain the plan_times in [since, until) of the scope of a `schedules` row."""
        key = ScopeKey(schedule["job_name"], schedule["scope_kind"], schedule["scope_id"])
        self._boots = schedule["boots"] or ()
        self._quoted = set()
        executions = self._reports.executions_at(key, since, until)
        skips = self._reports.skips_at(key, since, until)
        try:
            planned = list(self._plan_times(key, since, until))
        except ValueError as error:
            text = f"Its schedule is invalid: {error}."
            return Explanation(key, since, until, "spec_error", text, quoted=(str(error),))
        covered = [
            skip for skip in skips
            if any(skip["from_plan_time"] <= at <= skip["through_plan_time"] for at in planned)
        ]  # fmt: skip
        if executions or covered:
            texts = [self._ran(row, key) for row in executions]
            texts += [self._skipped(skip, schedule, key) for skip in covered]
            texts += self._covered(key, _not_succeeded(executions, covered, planned))
            verdict = _verdict(executions[-1]) if executions else "skipped"
            ids = tuple(row["id"] for row in executions)
        else:
            verdict, text = self._nothing(schedule, key, since, until, planned)
            texts, ids = [text], ()
        blockers = tuple(skip["blocked_by"] for skip in covered if skip["blocked_by"] is not None)
        text, quoted = " ".join(texts), tuple(self._quoted)
        return Explanation(key, since, until, verdict, text, ids, blockers, quoted)

    def present(self, schedule: Row) -> Explanation:
        """Explain the current state of the scope of a `schedules` row."""
        now = self._reports.now()
        key = ScopeKey(schedule["job_name"], schedule["scope_kind"], schedule["scope_id"])
        self._boots = schedule["boots"] or ()
        rows = self._reports.latest_executions(key, _SHOWN_EXECUTIONS)
        overdue = self._reports.overdue(key)
        try:
            state, following = self._state(schedule, key, now)
        except ValueError as error:
            state, following = "spec_error", f"Its schedule is invalid: {error}."
        job = self._reports.job(key.job_name)
        if job is not None and job["spec_error"] is not None and state in ("idle", "spec_error"):
            state = "spec_error"
            following = f"Nothing is planned until the job is corrected: {job['spec_error']}."
        texts = [self._ran(row, key) for row in rows]
        if overdue is not None:
            why = "" if state == "spec_error" else f": {overdue['reason']}: {overdue['detail']}"
            texts.append(f"It is overdue since {_at(overdue['due_at'])}{why}.")
        texts.append(following)
        unfinished = [
            verdict for row in rows if (verdict := _verdict(row)) in ("running", "pending")
        ]
        if overdue is not None and state == "idle":
            state = "overdue"
        verdict = next(iter(unfinished), state)
        ids = tuple(row["id"] for row in rows)
        return Explanation(key, now, now, verdict, " ".join(texts), ids)

    def _state(self, schedule: Row, key: ScopeKey, now: datetime) -> tuple[str, str]:
        """Return whether the scope is planned at present, and a sentence about what comes next."""
        row = self._revisions[-1]
        definition = self._definition(row)
        if row["state"] == "retired" or schedule["parked"] == "retired":
            return "retired", "The job or this scope is retired, so nothing more is planned."
        ends = row["pause_ends"]
        if row["state"] == "paused" and (ends is None or ends > now):
            # A pause is a revision of its own: its owner is found at an instant after its start.
            text = self._paused(max(now, row["effective_from"] + _TICK), key)
            return "paused", f"It does not run now: {text}."
        if definition.schedule is None:
            return "idle", "It has no schedule. It runs when triggered or enqueued."
        following = neighbours(definition, key, now)[1]
        if following is None and schedule["parked"] == "boot":
            return "idle", f"It runs at the next boot of {key.scope_id}."
        if following is None:
            return "idle", "It has no further plan_time."
        obstacle = self._obstacle(definition, key, following)
        then = "" if obstacle is None else f", but {obstacle}"
        return "idle", f"The next plan_time is {_at(following)}{then}. It is {_at(now)} now."

    def _definition(self, row: Row) -> Definition:
        return replace(Definition.from_row(row, self._dates), boots=self._boots)

    def _owner(self, instant: datetime) -> int:
        """Return the index of the revision that owns a plan_time in (its start, the next start]."""
        return max(0, bisect_left(self._froms, instant) - 1)

    def _due_at(self, key: ScopeKey, plan_time: datetime) -> datetime:
        return due_at(self._definition(self._revisions[self._owner(plan_time)]), key, plan_time)

    def _plan_times(self, key: ScopeKey, since: datetime, until: datetime) -> Iterator[datetime]:
        ends = [*self._froms[1:], until]
        for index, end in enumerate(ends):
            start = max(since - _TICK, self._froms[index] if index else since - _TICK)
            through = min(end, until - _TICK)
            if start < through:
                yield from walk(self._definition(self._revisions[index]), key, start, through)

    def _quote(self, *texts: str | None) -> None:
        """Note what people and handlers wrote in the paragraph."""
        self._quoted.update(filter(None, texts))

    def _detail(self, overdue: Row) -> str:
        detail: str = overdue["detail"]
        self._quote(quotes.of_overdue(overdue["reason"], detail))
        return detail

    # --- what ran -----------------------------------------------------------------------------

    def _ran(self, row: Row, key: ScopeKey) -> str:
        self._quote(row["requested_by"], row["cancel_requested_by"])
        for entry in (row, *row["attempts"]):
            if entry.get("error_msg") and entry["error_code"] != ErrorCode.WINDOW_PROCESSED:
                self._quote(entry["error_msg"].partition("\n")[0])
        if row["status"] == "RUNNING":
            row = row | {"lease": self._lease(row, key)}
        if self._whole_messages:
            return _sentences(row)
        shown = _shortened(row) | {"attempts": [_shortened(one) for one in row["attempts"]]}
        rest = f" `cronledger executions show {row['id']}` prints the whole message."
        return _sentences(shown) + (rest if shown != row else "")

    def _lease(self, row: Row, key: ScopeKey) -> str:
        """Return whether a RUNNING execution still runs, as the end of a sentence."""
        if row["runner_id"] == "observed":
            return f"has not been reported as ended; it may take until {_at(row['stale_after'])}"
        if row["stale_after"] > self._reports.now():
            errors = self._reports.failing(row["runner_id"])
            if errors is not None:
                return f"may have ended, because {row['runner_id']} is failing ({errors})"
            return f"still runs; its lease is valid until {_at(row['stale_after'])}"
        overdue = self._reports.overdue(key, row["id"])
        ended = (
            self._detail(overdue) if overdue else f"its lease ended at {_at(row['stale_after'])}"
        )
        return f"has not ended; {ended}"

    # --- what did not run ---------------------------------------------------------------------

    def _skipped(self, skip: Row, schedule: Row, key: ScopeKey) -> str:
        first, last = skip["from_plan_time"], skip["through_plan_time"]
        what = (
            f"{_at(first)} was skipped" if skip["count"] == 1
            else f"It was skipped with {skip['count'] - 1} others, {_at(first)} to {_at(last)}"
        )  # fmt: skip
        return f"{what}: {self._reason(skip, schedule, key)}."

    def _reason(self, skip: Row, schedule: Row, key: ScopeKey) -> str:
        match skip["reason"]:
            case "overlap":
                return self._overlap(skip["blocked_by"], key)
            case "superseded" | "calendar" | "upstream" | "host_absent" | "not_reported" as reason:
                return self._cause(reason, skip, key)
            case "paused":
                return self._paused(skip["through_plan_time"], key)
            case "retired":
                return self._retired(skip["through_plan_time"], schedule, key)
            case "operator":
                return self._by_operator(skip, key)
            case _:
                return self._missed(skip, key)

    def _cause(self, reason: str, skip: Row, key: ScopeKey) -> str:
        cause = _CAUSES[reason].format(skip["detail"])
        if reason == "calendar":
            self._quote(cause)
        if reason != "superseded":
            return cause
        return f"{cause}; {self._life(self._due_at(key, skip['through_plan_time']))}"

    def _covered(self, key: ScopeKey, plan_times: Sequence[datetime]) -> Iterator[str]:
        """Name the windows that contain these plan_times, each once."""
        named = set()
        for plan_time in plan_times:
            window = self._reports.covering_window(key, plan_time)
            if window is None or window["id"] in named:
                continue
            named.add(window["id"])
            yield (
                f"The time up to {_at(plan_time)} is covered by the window of execution"
                f" {window['id']}, {_at(window['window_start'])} to"
                f" {_at(window['window_end'])}."
            )

    def _overlap(self, blocked_by: int | None, key: ScopeKey) -> str:
        row = None
        if blocked_by is not None:
            row = self._reports.execution(blocked_by, payload=False)
        if row is None:
            return f"execution {blocked_by} was RUNNING (its row is no longer kept)"
        if row["attempt"] == 0:  # of an external job
            return f"no worker had claimed execution {blocked_by} yet"
        runner, since = row["runner_id"], row["started_at"]
        if row["status"] == "RUNNING":
            end = f"and {self._lease(row, key)};"
        elif since is None:
            last = row["attempts"][-1]
            runner, since = last["runner_id"], datetime.fromisoformat(last["started_at"])
            end = "and was released later,"
        else:
            end = f"to {_at(row['finished_at'])},"
        return (
            f"execution {blocked_by} was RUNNING on {runner}, from {_at(since)} {end}"
            " and the job's overlap is skip"
        )

    def _paused(self, plan_time: datetime, key: ScopeKey) -> str:
        due = self._due_at(key, plan_time)
        row = self._revisions[self._owner(due)]
        if row["state"] != "paused":
            return "the job was paused"
        ends = f" until {_at(row['pause_ends'])}" if row["pause_ends"] else ""
        reason = f" with the reason {row['reason']!r}" if row["reason"] else ""
        by = f"by {row['requested_by']}{reason}"
        self._quote(by)
        return f"the job was paused from {_at(row['effective_from'])}{ends} {by}"

    def _by_operator(self, skip: Row, key: ScopeKey) -> str:
        row = next(iter(self._planned_skips(key, skip["through_plan_time"])), None)
        text = f"an operator skipped it ({skip['detail']})" if row is None else skipped_by(row)
        self._quote(text)
        return text

    def _planned_skips(self, key: ScopeKey, plan_time: datetime) -> Sequence[Row]:
        return self._reports.planned_skips_at(key, plan_time, plan_time + _TICK)

    def _obstacle(self, definition: Definition, key: ScopeKey, plan_time: datetime) -> str | None:
        pauses = self._reports.job_pauses(key.job_name)
        found = obstacle(definition, key, plan_time, self._planned_skips(key, plan_time), pauses)
        self._quote(found)
        return found

    def _retired(self, plan_time: datetime, schedule: Row, key: ScopeKey) -> str:
        due = self._due_at(key, plan_time)
        row = self._revisions[self._owner(due)]
        if row["state"] == "retired":
            self._quote(by := f"by {row['requested_by']}")
            return f"the job was retired from {_at(row['effective_from'])} {by}"
        for began, ended in zip(schedule["retirements"], schedule["returns"], strict=True):
            if began < due and (ended is None or due <= ended):
                until = "" if ended is None else f" until it returned at {_at(ended)}"
                return f"this scope was retired at {_at(began)}{until}"
        return "the job or this scope was retired"

    def _missed(self, skip: Row, key: ScopeKey) -> str:
        plan_time = skip["through_plan_time"]
        policy = self._revisions[self._owner(skip["created_at"])]
        due = self._due_at(key, plan_time)
        grace = durations.format(policy["grace"])
        cause = f"which is later than its grace of {grace}, and catch_up is {policy['catch_up']}"
        if skip["revision"] != policy["number"]:  # its definition may have been invalid
            cause = f"and its definition, revision {skip['revision']}, was edited before that"
        return f"it had not started by {_at(skip['created_at'])}, {cause}; {self._life(due)}"

    def _life(self, instant: datetime) -> str:
        signs = self._reports.signs_of_life(instant)
        if signs["alive"]:
            return f"runners that were alive: {', '.join(signs['alive'])}"
        before = _at(signs["before"]) if signs["before"] else "the day before"
        after = _at(signs["after"]) if signs["after"] else "now"
        return f"no runner is known to have checked in between {before} and {after}"

    def _nothing(
        self, schedule: Row, key: ScopeKey, since: datetime, until: datetime,
        planned: Sequence[datetime],
    ) -> tuple[str, str]:  # fmt: skip
        began = schedule["created_at"]
        if until <= began or (planned and planned[0] <= began):
            text = f"Planning of this scope began at {_at(began)}, which is later."
            return "before_its_time", text
        if not planned:
            return "not_in_schedule", self._not_in_schedule(key, since)
        if planned[0] > self._authority(schedule):
            return "not_planned", self._not_planned(schedule, key, planned[0])
        oldest = self._reports.oldest_kept()
        if oldest is not None and planned[0] < oldest:
            return "not_kept", f"The ledger keeps only plan_times from {_at(oldest)} on."
        return "missing", (
            f"{_at(planned[0])} has neither an execution nor a skip, which is a violation."
            " `cronledger verify` finds all violations."
        )

    def _authority(self, schedule: Row) -> datetime:
        """Return how far planning has come: to the cursor, or to the first unplanned revision."""
        cursor: datetime = schedule["planned_through"]
        unplanned = [
            start for row, start in zip(self._revisions, self._froms, strict=True)
            if row["number"] > schedule["planned_revision"]
        ]  # fmt: skip
        return min([cursor, *unplanned])

    def _not_planned(self, schedule: Row, key: ScopeKey, plan_time: datetime) -> str:
        now = self._reports.now()
        due = self._due_at(key, plan_time)
        if due > now - _SOON:
            row = self._revisions[self._owner(plan_time)]
            start = f"it may start at {_at(due)}"
            if Job.model_construct(**{name: row[name] for name in _SIDES}).is_observed(plan_time):
                start = "another scheduler runs it"
            then = self._obstacle(self._definition(row), key, plan_time) or start
            return f"{_at(plan_time)} is in the future: {then}. It is {_at(now)} now."
        overdue = self._reports.overdue(key)
        why = f" {overdue['reason']}: {self._detail(overdue)}." if overdue else ""
        return (
            f"{_at(plan_time)} was due at {_at(due)} and is not planned yet, because planning of"
            f" this scope has reached {_at(schedule['planned_through'])}.{why}"
        )

    def _not_in_schedule(self, key: ScopeKey, instant: datetime) -> str:
        index = self._owner(instant)
        row = self._revisions[index]
        definition = self._definition(row)
        if definition.schedule is None:
            return f"Revision {row['number']} has no schedule. It runs when triggered or enqueued."
        before, after = neighbours(definition, key, instant)
        near = " and ".join(_at(at) for at in (before, after) if at is not None) or "none"
        texts = [
            f"It is not in the schedule {definition.schedule!r} ({definition.timezone}) of revision"
            f" {row['number']}, which applies from {_at(row['effective_from'])}. The nearest"
            f" plan_times are {near}."
        ]
        if (change := clock_change(definition.timezone, instant)) is not None:
            texts.append(_clocks(definition.timezone, *change))
        texts += self._other_revisions(key, index, instant)
        return " ".join(texts)

    def _other_revisions(self, key: ScopeKey, index: int, instant: datetime) -> Iterator[str]:
        """Name the revisions before and after whose schedule contains the instant."""
        for other in (index - 1, index + 1):
            if not 0 <= other < len(self._revisions):
                continue
            row = self._revisions[other]
            if instant in walk(self._definition(row), key, instant - _TICK, instant):
                began = _at(row["effective_from"])
                until = f" to {_at(self._froms[index])}" if other < index else " on"
                yield f"Revision {row['number']}, which applies from {began}{until}, has it."


def schedules(
    reports: Reports, revisions: Sequence[Row], scope: str | None, limit: int
) -> list[Row]:
    """Return the rows of `schedules` of a job, at most `limit`; with `scope`, only of that scope.

    `revisions`: the history of the job. A scope may have belonged to a kind of an earlier revision.
    Raises psycopg.Error.
    """
    job = revisions[-1]["job_name"]
    if scope is None:
        found = reports.scopes(job, limit)
        keys = [ScopeKey(job, row["scope_kind"], row["scope_id"]) for row in found]
    else:
        kinds = sorted({row["scope_kind"] for row in revisions})
        keys = [ScopeKey(job, kind, scope) for kind in kinds]
    rows = (reports.schedule(key) for key in keys)
    return [row for row in rows if row is not None]


# --- sentences --------------------------------------------------------------------------------


def _verdict(row: Row) -> str:
    if row["next_attempt_at"] is not None or row["status"] == "PENDING":
        return "pending"
    words = {"SUCCESS": "ran", "RUNNING": "running", "FAILED": "failed", "CANCELLED": "cancelled"}
    return words[row["status"]]


def _not_succeeded(
    executions: Sequence[Row], skips: Sequence[Row], planned: Sequence[datetime]
) -> list[datetime]:
    """Return the plan_times that no success of their own has processed; of a skip, its last one."""
    missed = [row["plan_time"] for row in executions if row["status"] != "SUCCESS"]
    for skip in skips:
        missed.append(max(at for at in planned if at <= skip["through_plan_time"]))
    return sorted(missed)


def _shortened(entry: Row) -> Row:
    """Return an execution or an earlier attempt with only the first line of its error.

    The line about retry filters stays as well.
    """
    message, not_retried = split_note(entry.get("error_msg"))
    if message is None:
        return entry
    lines = [message.partition("\n")[0]]
    if not_retried is not None:
        lines.append(NOT_RETRIED + not_retried)
    return entry | {"error_msg": "\n".join(lines)}


def _sentences(row: Row) -> str:
    by = f" by {row['requested_by']}" if row["requested_by"] else ""
    origin = "the schedule" if row["trigger"] == "schedule" else f"{row['trigger']}{by}"
    head = (
        f"{_at(row['plan_time'])} is execution {row['id']} ({origin}, revision {row['revision']})"
    )
    earlier = "".join(f" {_attempt(one)}." for one in row["attempts"])
    window = row["window_start"]
    given = "" if window is None else f" Its window began at {_at(window)}."
    redacted = row["redacted_at"]
    removed = "" if redacted is None else f" Its data was redacted at {_at(redacted)}."
    return f"{head}: {_state(row)}.{given}{earlier}{removed}"


def _state(row: Row) -> str:
    attempt = f"attempt {row['attempt']} of {row['max_attempts']}"
    match row["status"]:
        case "PENDING":
            return _pending(row)
        case "RUNNING":
            cancel = f"; {row['cancel_requested_by']} requested its end" if _cancelled(row) else ""
            return f"{attempt} {_started(row)} and {row['lease']}{cancel}"
        case "SUCCESS":
            return f"{attempt} {_started(row)} and succeeded after {_length(row)}"
        case "FAILED":
            message, not_retried = split_note(row["error_msg"])
            if row["next_attempt_at"]:
                then = f"it is retried at {_at(row['next_attempt_at'])}"
            else:
                then = "it is not retried" + (f": {not_retried}" if not_retried else "")
            began = _started(row) if row["started_at"] else "never started"
            code = f"{row['error_code']}: {message or 'no message'}"
            is_known = row["error_code"] != ErrorCode.STALE_TIMEOUT
            end = f"failed after {_length(row)}" if is_known else "its end is unknown"
            return f"{attempt} {began} and {end} ({code}); {then}"
        case _:
            by = row["cancel_requested_by"] or "its runner"
            waited = "it waited for another attempt" if row["attempt"] else "it had not started"
            began = f"{attempt} {_started(row)}" if row["started_at"] else waited
            if row["error_code"] == ErrorCode.WINDOW_PROCESSED:
                return f"{began}; {row['error_msg']}"
            return f"{began}; cancelled by {by} at {_at(row['finished_at'])}"


def _pending(row: Row) -> str:
    end = "" if row["waits_until"] is None else f", until {_at(row['waits_until'])}"
    if row["waits_for"] is not None:
        # engine/maintenance/gates.py extends the wait by LATE_PLAN.
        end += ", or up to a minute longer if that job was edited" if end else ""
        missing = f"{row['waits_for']}; a success by a retry or a backfill counts, too"
        return f"it waits for a job that it requires{end}: {missing}"
    if row["attempts"] and row["attempts"][-1]["error_code"] == ErrorCode.NOT_READY:
        again = _at(row["next_attempt_at"])
        latest = f"{end} at the latest" if end else ""
        return f"its handler was not ready, and is called again at {again}{latest}"
    return f"it has been waiting to be claimed since {_at(row['next_attempt_at'])}"


def _cancelled(row: Row) -> bool:
    return row["cancel_requested_at"] is not None


def _started(row: Row) -> str:
    # due_at belongs to the first attempt, so later attempts have no delay. Waiting for required
    # jobs does not count as a delay.
    late: timedelta = row["started_at"] - row["due_at"]
    first = row["attempt"] == 1 and row["waits_until"] is None
    delay = "" if not first or late < _AT_ONCE else f", {durations.format(_whole(late))} late,"
    return f"started at {_at(row['started_at'])}{delay} on {row['runner_id']}"


def _attempt(row: Mapping[str, Any]) -> str:
    message = f" ({row['error_msg']})" if row.get("error_msg") else ""
    started, seen = (
        f", {word} {_at(datetime.fromisoformat(row[name]))}" if row.get(name) else ""
        for name, word in (("started_at", "started"), ("last_seen", "last seen"))
    )
    return (
        f"Attempt {row['attempt']} on {row['runner_id']}{started}{seen}, ended with"
        f" {row['error_code']}{message}"
    )


def _clocks(timezone: str, at: datetime, before: timedelta, after: timedelta) -> str:
    way = "forward" if after > before else "back"
    old, new = ((at + offset).strftime("%H:%M") for offset in (before, after))
    return f"The clocks of {timezone} went {way} from {old} to {new} at {_at(at)}."


def _length(row: Row) -> str:
    return durations.format(length(row["duration_ms"] or 0))


def _whole(length: timedelta) -> timedelta:
    return timedelta(seconds=int(length.total_seconds()))


def _at(instant: datetime) -> str:
    return iso(instant, "seconds")
