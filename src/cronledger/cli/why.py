"""`cronledger why`: explain why a job ran, or did not run, at a given time."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import click

from cronledger.cli import complete
from cronledger.cli.session import session
from cronledger.cli.show import echo, json_option, named, parameter, print_json, unknown_job
from cronledger.explain.moments import read_moment
from cronledger.explain.why import Explanation, Why
from cronledger.explain.why import schedules as schedules_of
from cronledger.ledger.reports import Reports, Row
from cronledger.rules import zones
from cronledger.rules.cron_fields import CronError
from cronledger.rules.instants import iso
from cronledger.rules.model import GLOBAL, ScopeKey

MOST_SCOPES = 20
NOW = "now"


@click.command()
@click.argument("job", metavar="JOB|ID", shell_complete=complete.jobs)
@click.argument("moment", metavar="[TIME]", default=NOW)
@click.option(
    "--scope", metavar="ID", shell_complete=complete.scopes, help="Only this scope of the job."
)
@json_option
def why(*, job: str, moment: str, scope: str | None, as_json: bool) -> None:
    """Explain why a job ran, or did not run, at TIME. Prints one paragraph per scope.

    Without TIME, or with `now`, why explains the current state of the job. With the ID of an
    execution in place of JOB, it explains that execution.

    TIME is ISO 8601, or a time of day such as 03:00, which means its latest occurrence. A time
    without an offset is read in the time zone of the job. 03:00 means the whole minute, and
    03:00:00 means that second.
    """
    explain: Callable[[Row], Explanation]
    with session() as ledger:
        reports = ledger.reports
        history = reports.history(job)
        if not history and job.isdecimal() and moment == NOW:
            answers, more = [_execution(reports, int(job), as_json)], False
        elif not history:
            raise unknown_job(job, reports)
        else:
            schedules = _schedules(reports, history, job, scope)
            more = len(schedules) > MOST_SCOPES
            why = Why(reports, history, whole_messages=as_json)
            explain = why.present
            if moment != NOW:
                window = _window(moment, _zone(history[-1]["timezone"]), reports.now())
                explain = partial(why.explain, since=window[0], until=window[1])
            answers = [explain(row) for row in schedules[:MOST_SCOPES]]
    if as_json:
        print_json([_json(answer) for answer in answers])
    else:
        _print(answers)
    if more:
        echo(
            f"Note: only the first {MOST_SCOPES} scopes are shown; use --scope for another",
            err=True,
        )


def _execution(reports: Reports, execution_id: int, whole_messages: bool) -> Explanation:
    row = None
    if execution_id < 2**63:
        row = reports.execution(execution_id, payload=False)
    if row is None:
        raise click.UsageError(
            f"there is neither a job nor an execution {execution_id}; `cronledger jobs list` lists "
            "the jobs, and `cronledger executions list` lists executions"
        )
    key = ScopeKey(row["job_name"], row["scope_kind"], row["scope_id"])
    schedule = reports.schedule(key)
    assert schedule is not None  # an execution belongs to a schedule
    explain = Why(reports, reports.history(key.job_name), whole_messages=whole_messages).explain
    return explain(schedule, row["plan_time"], row["plan_time"] + timedelta(microseconds=1))


def _zone(name: str) -> ZoneInfo:
    try:
        return zones.named(name)
    except CronError:
        click.echo(f"Note: the time zone {name!r} of the job does not exist; UTC is used", err=True)
        return ZoneInfo("UTC")


def _schedules(reports: Reports, history: list[Row], job: str, scope: str | None) -> list[Row]:
    schedules = schedules_of(reports, history, scope, MOST_SCOPES + 1)
    trouble = reports.provider_trouble(job)
    because = f"{trouble['reason']}: {trouble['detail']}" if trouble is not None else None
    if not schedules:
        named = f" {scope!r}" if scope is not None else ""
        advice = because or f"`cronledger jobs show {job}` lists its scopes"
        raise click.UsageError(f"job {job!r} has no scope{named}; {advice}")
    if because is not None:
        echo(f"Note: {because}", err=True)
    return schedules


def _window(text: str, zone: ZoneInfo, now: datetime) -> tuple[datetime, datetime]:
    """Return [since, until) in UTC: the minute, second or microsecond that `text` names."""
    with parameter("TIME"):
        since, until, note = read_moment(text, zone, now)
    if note is not None:
        echo(f"Note: {note}", err=True)
    return since, until


def _json(answer: Explanation) -> dict[str, Any]:
    return {
        "job": answer.key.job_name,
        "scope_kind": answer.key.scope_kind,
        "scope_id": answer.key.scope_id,
        "since": answer.since,
        "until": answer.until,
        "verdict": answer.verdict,
        "executions": list(answer.executions),
        "text": answer.text,
    }


def _print(answers: list[Explanation]) -> None:
    for answer in answers:
        key = answer.key
        scope = "" if key.scope_kind == GLOBAL else f" {key.scope_kind}/{key.scope_id}"
        echo(f"{key.job_name}{scope} at {iso(answer.since)}: {named(answer.text)}")
