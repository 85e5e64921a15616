"""Why: what `cronledger why` prints for a job and a time, with links to the rows it names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from zoneinfo import ZoneInfo

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from cronledger.explain.moments import Moment, read_moment
from cronledger.explain.why import Explanation, Why
from cronledger.explain.why import schedules as schedules_of
from cronledger.ledger.reports import ReadRows, Reports
from cronledger.rules import zones
from cronledger.rules.cron_fields import CronError
from cronledger.rules.instants import InstantError
from cronledger.web import links, queries
from cronledger.web.links import Links
from cronledger.web.prose import Pieces, pieces
from cronledger.web.site import Entry, site_of

MOST_SCOPES = 20

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
        note = pieces(found.value.moment.note or "")
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


def linked(answer: Explanation, revisions: frozenset[int], to: Links) -> Pieces:
    """Return the pieces of the paragraph. The executions and revisions that it names are links."""
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

    return pieces(answer.text, answer.quoted, link)


ROUTES = links.routes(PATH, show)
