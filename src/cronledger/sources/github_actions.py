"""Read workflows of GitHub Actions: each schedule becomes a job that dispatches the workflow."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from cronledger.rules import cron
from cronledger.sources.crontab_words import time_fields
from cronledger.sources.imported import (
    Entry,
    Import,
    Kind,
    Note,
    NotImportedError,
    Source,
    Table,
    slug_of,
    unique,
)
from cronledger.sources.yaml_documents import Part, read_documents

API = "https://api.github.com"
TOKEN = "GITHUB_TOKEN"
SHORTEST = timedelta(minutes=5)
_STEP = re.compile(r"(?<![^,])([0-9]{1,4}|[A-Za-z]{3})/")
_ENDS = ("59", "23", "31", "12", "6")
_EVENT = re.compile(r"github\.event\.schedule|github\.event_name|GITHUB_EVENT_NAME")

HEADER = (
    "Each job calls the API of GitHub to dispatch a workflow. The replicas need a token in their "
    f"environment, in {TOKEN}, that may write the actions of the repository.",
    "Remove `schedule` from the workflow when the job is applied; otherwise both start it.",
    "A job is a success if GitHub accepts the dispatch. The ledger does not know how the run of "
    "the workflow ends.",
    "GitHub may start scheduled runs late, or drop them under load. A replica does not, and "
    'catch_up = "latest" starts the newest run that was missed in an outage.',
)


@dataclass(frozen=True, slots=True)
class Options:
    """`repository`: OWNER/NAME. `ref`: the branch whose workflow runs. `api`: its address."""

    repository: str
    ref: str = "main"
    api: str = API


def read_workflows(files: Iterable[tuple[str, str]], options: Options) -> Import:
    """Return the jobs of these workflows, which are pairs of file name and text.

    Raises RefusedError if a text is not YAML.
    """
    taken: set[str] = set()
    sources = []
    for file, text in files:
        entries = [
            entry
            for part in read_documents(text)
            for entry in _Reader(file, part, options, taken).entries()
        ]
        sources.append(Source(file, tuple(entries)))
    return Import("github-actions", tuple(sources), HEADER)


class _Reader:
    """Reads one workflow. Its schedules have one entry each."""

    def __init__(self, file: str, part: Part, options: Options, taken: set[str]) -> None:
        self.file, self.part, self.options, self.taken = file, part, options, taken
        self.notes: list[Note] = []

    def note(self, message: str, kind: Kind = "info") -> None:
        self.notes.append(Note(message, kind))

    def entries(self) -> Iterable[Entry]:
        place = f"{self.file}:{self.part.line}"
        try:
            schedules = self._schedules()
        except NotImportedError as why:
            yield Entry(place, self.part.text.split("\n")[0], {}, (Note(str(why), "dropped"),))
            return
        for number, schedule in enumerate(schedules):
            self.notes = []
            jobs: dict[str, Table] = {}
            text = ""
            try:
                if not isinstance(schedule, dict) or not isinstance(schedule.get("cron"), str):
                    raise NotImportedError("the schedule has no text `cron`; correct it")
                zone = schedule.get("timezone")
                text = f"cron: {schedule['cron']!r}" + (f", timezone: {zone!r}" if zone else "")
                name = unique(self._slug(), self.taken)
                jobs[name] = self._job(schedule["cron"], zone, number, len(schedules))
                self.taken.add(name)
            except (NotImportedError, cron.CronError) as why:
                self.note(str(why), "dropped")
            yield Entry(place, text or str(schedule)[:60], jobs, tuple(self.notes))

    @property
    def _triggers(self) -> Any:
        # YAML 1.1 reads the key `on` as true.
        workflow = self.part.value
        return workflow.get("on", workflow.get(True))

    def _schedules(self) -> list[Any]:
        if not isinstance(self.part.value, dict):
            raise NotImportedError(
                "the document is not a workflow; name a file of .github/workflows"
            )
        triggers = self._triggers
        schedules = triggers.get("schedule", []) if isinstance(triggers, dict) else []
        if not isinstance(schedules, list):
            raise NotImportedError("on.schedule is not a list; correct it")
        return schedules

    def _slug(self) -> str:
        named = self.part.value.get("name")
        stem = PurePath(self.file).stem if self.file != "-" else ""
        return slug_of(named if isinstance(named, str) else stem) or slug_of(stem) or "workflow"

    def _job(self, text: str, zone: object, number: int, count: int) -> Table:
        if zone is not None and not isinstance(zone, str):
            raise NotImportedError("timezone is not a text; correct it")
        written = read_schedule(text)
        spec = cron.parse(written, timezone=zone or "UTC")
        if spec.shortest_period < SHORTEST:
            self.note("GitHub runs a schedule at most every 5 minutes; here it fires as written")
        self._note_dispatch()
        if count > 1 or _EVENT.search(self.part.text):
            self.note(
                "a dispatched run has the event workflow_dispatch and no github.event.schedule; "
                "check the conditions of the workflow",
                "changed" if _EVENT.search(self.part.text) else "info",
            )
        file = PurePath(self.file).name if self.file != "-" else "WORKFLOW.yml"
        if self.file == "-":
            self.note("the name of the file is unknown; replace WORKFLOW.yml", "changed")
        return {
            "schedule": written,
            "timezone": zone or "UTC",
            "http": {
                "url": f"{self.options.api}/repos/{self.options.repository}/actions/workflows/"
                f"{file}/dispatches",
                "method": "POST",
                "headers": {
                    "Accept": "application/vnd.github+json",
                    "Authorization": {"env": TOKEN, "prefix": "Bearer "},
                },
                "body": {"ref": self.options.ref},
            },
            "overlap": "allow",
            "catch_up": "latest",
        }

    def _note_dispatch(self) -> None:
        triggers: Mapping[str, Any] = self._triggers
        if "workflow_dispatch" not in triggers:
            self.note("the workflow has no workflow_dispatch; add it below `on`", "changed")
            return
        dispatch = triggers["workflow_dispatch"]
        inputs = dispatch.get("inputs") if isinstance(dispatch, dict) else None
        for name, one in (inputs if isinstance(inputs, dict) else {}).items():
            if isinstance(one, dict) and one.get("required") is True and one.get("default") is None:
                self.note(f"the input {name} is required; add it to the body", "changed")


def read_schedule(text: str) -> str:
    """Return the schedule for `cron:` of a workflow. Raises NotImportedError."""
    fields = text.split()
    if text.strip().startswith("@"):
        raise NotImportedError(f"{text!r}: GitHub has no @ schedules; use five fields")
    if len(fields) != 5:
        raise NotImportedError(f"cron {text!r} has {len(fields)} fields; use five")
    if "~" in text or re.search(r"(?<![0-9])7(?![0-9])", fields[4].partition("/")[0]):
        raise NotImportedError(f"cron {text!r}: GitHub reads neither ~ nor 7 as Sunday; use 0")
    # GitHub documents 20/15 as minutes 20, 35 and 50.
    whole = (_STEP.sub(rf"\1-{end}/", field) for field, end in zip(fields, _ENDS, strict=True))
    return time_fields(" ".join(whole))
