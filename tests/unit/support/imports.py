"""What the tests of the importers have in common."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from click.testing import CliRunner, Result

from cronledger.cli import main
from cronledger.rules import cron
from cronledger.rules.problems import RefusedError
from cronledger.sources import toml
from cronledger.sources.imported import Import, render


def run_import(kind: str, *arguments: object, stdin: str | bytes = "") -> Result:
    """Run `cronledger import KIND`."""
    given = ["import", kind, *map(str, arguments)]
    return CliRunner().invoke(main, given, input=stdin, catch_exceptions=False)


def notes(imported: Import, kind: str) -> str:
    """Return the messages of this kind about the entries of the first source."""
    return "\n".join(
        note.message for one in imported.sources[0].entries for note in one.notes
        if note.kind == kind
    )  # fmt: skip


def loaded(imported: Import, directory: Path) -> int:
    """Write the file, fail unless it has every job, and return how many."""
    (directory / "c.toml").write_text(render(imported), "utf-8")
    count = sum(one.jobs for one in imported.sources)
    assert len(toml.load(directory / "c.toml").jobs) == count
    return count


def loaded_of(
    texts: Iterable[str], read: Callable[[str], Import], directory: Path
) -> tuple[int, list[RefusedError]]:
    """Return how many texts are imported and loaded, and the errors of those that are refused."""
    count, refused = 0, []
    for text in texts:
        try:
            imported = read(text)
        except RefusedError as error:
            refused.append(error)
        else:
            loaded(imported, directory)
            count += 1
    return count, refused


def firings(job: dict[str, Any], after: datetime, through: datetime) -> list[datetime]:
    """Return the plan_times of the table of a job."""
    day_or = job.get("day_or") is None
    spec = cron.parse(job["schedule"], timezone=job.get("timezone") or "UTC", day_or=day_or)
    begin = max(after, (job.get("starts_at") or after) - timedelta(microseconds=1))
    return list(spec.plan_times(begin, min(through, job.get("ends_at") or through)))


def changes(zone: str, start: datetime) -> list[datetime]:
    """Return the instants of a year at which the clocks of a zone change."""
    hours = [start + timedelta(hours=hour) for hour in range(366 * 24)]
    offsets = [at.astimezone(ZoneInfo(zone)).utcoffset() for at in hours]
    return [hours[at] for at in range(1, len(hours)) if offsets[at] != offsets[at - 1]]


def assert_same_year(
    zone: str, start: datetime, cases: Iterable[tuple[dict[str, Any], Iterable[datetime]]]
) -> None:
    """Fail unless each job fires for a year when it did, except within hours of a clock change."""
    away, through, compared = changes(zone, start), start + timedelta(days=366), 0
    for job, expected in cases:
        ours, theirs = (
            [at for at in found if all(abs(at - change) > timedelta(hours=4) for change in away)]
            for found in (firings(job, start, through), expected)
        )
        assert ours == theirs, job
        compared += len(ours)
    assert compared > 2000
