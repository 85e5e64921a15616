"""The output of `cronledger check`: a table, JSON, or the workflow commands of GitHub."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.show import counted, echo, print_json
from cronledger.cli.source import Source
from cronledger.explain.check import Outlook, outlook
from cronledger.rules.calendar_changes import in_words
from cronledger.rules.calendars import Calendar
from cronledger.rules.cron_fields import is_reboot
from cronledger.rules.firings import change_local, change_note, local_text, note
from cronledger.rules.instants import iso
from cronledger.rules.printable import clean
from cronledger.rules.problems import Problem
from cronledger.sources.places import Place

LISTING = Listing({"job": "JOB", "local": "LOCAL", "note": "NOTE"}, (), "there are no jobs")
_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY_ESCAPES = {**_ESCAPES, ":": "%3A", ",": "%2C"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and where its job is declared."""

    source: str
    problem: Problem
    place: Place | None

    @property
    def level(self) -> str:
        return "warning" if self.problem.warning else "error"


@dataclass(slots=True)
class Checked:
    """One source: its content, or None if it is invalid, and what was found in it.

    `calendars`: those that it declares, written out.
    """

    name: str
    source: Source | None
    findings: list[Finding]
    calendars: Sequence[Calendar] = ()


def report_of(checked: Sequence[Checked], after: datetime, count: int) -> dict[str, Any]:
    """Return what --format json prints."""
    calendars = {calendar.name: calendar for one in checked for calendar in one.calendars}
    return {
        "from": iso(after),
        "sources": [one.name for one in checked],
        "valid": all(one.source is not None for one in checked),
        "jobs": [
            _job(one.name, outlook(job, after, count, calendars))
            for one in checked
            if one.source is not None
            for job in one.source.jobs
        ],
        "channels": [
            {"source": one.name, "channel": name, "kind": channel.kind}
            for one in checked
            if one.source is not None
            for name, channel in one.source.channels.items()
        ],
        "calendars": [
            {
                "source": one.name,
                "calendar": calendar.name,
                "through": str(calendar.through),
                "excluded": len(calendar.excluded),
            }
            for one in checked
            for calendar in one.calendars
        ],
        "findings": [_finding(finding) for one in checked for finding in one.findings],
    }


def _job(source: str, found: Outlook) -> dict[str, Any]:
    job = found.job
    return {
        "source": source, "job": job.name, "schedule": job.schedule, "timezone": job.timezone,
        "queue": job.queue,
        "firings": [
            {
                "plan_time": iso(firing.plan_time),
                "local": local_text(firing.local),
                "note": note(firing),
            }
            for firing in found.firings
        ],
        "clock_changes": [
            {
                "at": iso(change_local(change)),
                "local": local_text(change_local(change)),
                "effect": change.effect,
                "note": change_note(change),
            }
            for change in found.clock_changes
        ],
        "calendar": job.calendar,
        "calendar_firings": [
            {
                "year": change.year, "disappear": change.disappear, "appear": change.appear,
                "note": f"calendar {job.calendar}: {in_words(change, job.on_excluded)}",
            }
            for change in found.calendar_firings
        ],
    }  # fmt: skip


def _finding(finding: Finding) -> dict[str, Any]:
    problem, place = finding.problem, finding.place
    where = None if place is None else _relative(place.file)
    line = None if place is None else place.line
    if where is not None:
        problem = replace(problem, where=where if line is None else f"{where}:{line}")
    return {
        "level": finding.level, "source": finding.source, "file": where, "line": line,
        "job": problem.job, "field": problem.field, "message": str(problem),
    }  # fmt: skip


def _relative(file: str) -> str:
    """Return the path of a file below the working directory, otherwise its absolute path."""
    path = Path(os.path.abspath(file))  # noqa: PTH100 - links stay as they are
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def print_report(report: Mapping[str, Any], form: str) -> None:
    """Print a report, which may have been parsed from JSON, in one of FORMATS."""
    if form == "json":
        print_json(report)
    elif form == "github":
        for finding in report["findings"]:
            click.echo(_workflow_command(finding))
    else:
        _print_text(report)


def _print_text(report: Mapping[str, Any]) -> None:
    """Print the firings on standard output, and the findings on standard error."""
    now = datetime.fromisoformat(report["from"])
    if report["jobs"] or report["valid"]:
        print_listing([row for job in report["jobs"] for row in _rows(job)], LISTING, now)
    for finding in report["findings"]:
        echo(f"{finding['level'].capitalize()}: {finding['message']}", err=True)
    levels = Counter(finding["level"] for finding in report["findings"])
    parts = [counted(len(report["jobs"]), "job")]
    parts += [
        counted(len(report[f"{kind}s"]), kind)
        for kind in ("calendar", "channel")
        if report[f"{kind}s"]
    ]
    parts += [counted(levels[level], level) for level in ("error", "warning")]
    echo(f"{', '.join(report['sources'])}: {', '.join(parts)}", err=True)


def _rows(job: Mapping[str, Any]) -> list[dict[str, str]]:
    if job["schedule"] is None:
        note = "no schedule: it runs when it is triggered or enqueued"
        return [{"job": job["job"], "local": "", "note": note}]
    found = {change["at"]: change for change in job["clock_changes"]}
    found |= {firing["plan_time"]: firing for firing in job["firings"]}
    rows = [row for _, row in sorted(found.items())]
    rows += [{"local": "", "note": change["note"]} for change in job["calendar_firings"]]
    if not rows:
        at_boot = is_reboot(job["schedule"])
        note = "at the next boot of each host" if at_boot else "no firing to show"
        return [{"job": job["job"], "local": "", "note": note}]
    return [{"job": job["job"], "local": row["local"], "note": row["note"]} for row in rows]


def _workflow_command(finding: Mapping[str, Any]) -> str:
    """Return the command with which a workflow of GitHub annotates a line."""
    properties = []
    if finding["file"] is not None:
        properties.append(f"file={_escaped(_in_workspace(finding['file']), _PROPERTY_ESCAPES)}")
    if finding["line"] is not None:
        properties.append(f"line={finding['line']}")
    head = " ".join(part for part in (finding["level"], ",".join(properties)) if part)
    return f"::{head}::{_escaped(clean(finding['message']), _ESCAPES)}"


def _in_workspace(file: str) -> str:
    """Return the path as GitHub names it: relative to the checkout."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    path = Path.cwd() / file
    if workspace and path.is_relative_to(workspace):
        return str(path.relative_to(workspace))
    return file


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)
