"""Why: what `cronledger why` prints for a job and a time, with links to the rows it names."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from cronledger.explain.moments import Moment, read_moment
from cronledger.explain.why import Explanation, Why
from cronledger.explain.why import schedules as schedules_of
from cronledger.ledger.reports import ReadRows, Reports
from cronledger.rules import instants, zones
from cronledger.rules.cron_fields import CronError
from cronledger.rules.instants import InstantError
from cronledger.web import links, queries
from cronledger.web.links import Links
from cronledger.web.site import Entry, site_of

MOST_SCOPES = 20
_NAMED = (
    r"\b(?:(?:(?P<execution>[Ee]xecution)|(?P<revision>[Rr]evision)) (?P<number>\d+)"
    r"|(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?:Z| UTC))"
)
"""What a paragraph names: rows, and instants as Python and SQL write them."""

PATH = "/why"
ENTRY = Entry("Why", PATH)


@dataclass(frozen=True, slots=True)
class Explained:
    """The answers for a job and a time.

    `more`: the job has further scopes. `zone`, `day`: those of the job.
    """

    moment: Moment
    answers: Sequence[Explanation]
    more: bool
    zone: str
    day: date
    revisions: frozenset[int]


async def show(request: Request) -> Response:
    """Return the form, and the explanation of what its fields name."""
    site = site_of(request)
    job, scope, time = (queries.text(request, name) for name in ("job", "scope", "time"))
    found, problem, texts, note = None, None, [], []
    if job is not None and time is not None:
        try:
            found = await site.reader.compute(
                "why",
                lambda read: explain(read, job, scope, time.strip()),
                job=job,
                scope=scope,
                time=time,
            )
        except (LookupError, InstantError) as error:
            problem = str(error.args[0])
    if found is not None and found.value is not None:
        texts = [
            (answer, linked(answer, found.value.revisions, Links(request)))
            for answer in found.value.answers
        ]
        note = _parts(found.value.moment.note or "", (), lambda _: None)
    return await site.page(
        request, "why.html", status=200 if problem is None else 400, job=job, scope=scope,
        time=time, found=found, texts=texts, note=note, problem=problem, most=MOST_SCOPES,
    )  # fmt: skip


def explain(read: ReadRows, job: str, scope: str | None, time: str) -> Explained:
    """Return why a job ran or did not run at a time. Raises LookupError, InstantError."""
    reports = Reports(read)
    history = reports.history(job)
    if not history:
        raise LookupError(f"The job {job} has never existed.")
    zone = _zone(history[-1]["timezone"])
    moment = read_moment(time, zone, reports.now())
    schedules = schedules_of(reports, history, scope, MOST_SCOPES + 1)
    if not schedules:
        named = "" if scope is None else f" {scope}"
        raise LookupError(f"The job {job} has no scope{named}.")
    explainer = Why(reports, history, whole_messages=False)
    answers = [
        explainer.explain(row, moment.since, moment.until) for row in schedules[:MOST_SCOPES]
    ]
    numbers = frozenset(row["number"] for row in history)
    day = moment.since.astimezone(zone).date()
    return Explained(moment, answers, len(schedules) > MOST_SCOPES, zone.key, day, numbers)


def _zone(name: str) -> ZoneInfo:
    try:
        return zones.named(name)
    except CronError:  # a job that was written by SQL; its spec_error names the zone
        return zones.named("UTC")


def linked(answer: Explanation, revisions: frozenset[int], to: Links) -> list[str | datetime]:
    """Return the parts of the paragraph. The executions and revisions that it names are links."""
    known = {*answer.executions, *answer.blockers}

    def link(match: re.Match[str]) -> Markup | None:
        number = int(match["number"])
        if match["execution"] and number in known:
            address = to("/execution", id=number)
        elif match["revision"] and number in revisions:
            address = to.revision(answer.key.job_name, number)
        else:
            return None
        return Markup('<a href="{}">{}</a>').format(address, match[0])

    return _parts(answer.text, answer.errors, link)


def _parts(
    text: str, errors: Sequence[str], link: Callable[[re.Match[str]], Markup | None]
) -> list[str | datetime]:
    """Return a text in parts: its instants, which the page shows in the zone of its times, what
    `link` returns for the rows that it names, and the text between them.

    The errors that it quotes stay as they are.
    """
    quoted = [rf"(?<=[ (]){re.escape(error)}(?=[)\n])" for error in errors]
    named = re.compile("|".join([*quoted, _NAMED]))
    parts: list[str | datetime] = []
    end = 0
    for match in named.finditer(text):
        part = link(match) if match["number"] else match["day"] and _instant(match)
        if part:
            parts += [text[end : match.start()], part]
            end = match.end()
    return [*parts, text[end:]]


def _instant(match: re.Match[str]) -> datetime | None:
    try:
        return instants.parse(f"{match['day']}T{match['time']}Z")
    except InstantError:  # in the reason of a person
        return None


ROUTES = links.routes(PATH, show)
