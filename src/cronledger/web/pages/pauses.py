"""Pauses of jobs: those that are planned or in force, a plan of another one, and what it skips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.explain.pauses import OPEN_ENDED, PausedJob, paused_jobs, selected
from cronledger.ledger import calls
from cronledger.ledger.reports import ReadRows, Reports
from cronledger.rules.instants import InstantError
from cronledger.web import queries
from cronledger.web.access.identity import RefusedRequestError
from cronledger.web.forms import form_of
from cronledger.web.site import Entry, identity_of, site_of

MOST = 200
"""Pauses of the page."""
MOST_JOBS = 100
"""Jobs of a preview that are listed."""
PATH = "/pauses"

ENTRY = Entry("Pauses", PATH)
OPEN_END = "none"
"""The text of an end that is not planned."""
FIELDS = ("job", "queue", "owner", "labels", "reason")
ENDS = ("from", "until")


@dataclass(frozen=True, slots=True)
class Plan:
    """A pause that was asked for. Parts of the selection that are None do not restrict."""

    job: str | None
    queue: str | None
    owner: str | None
    labels: dict[str, str]
    begins: datetime | None
    until: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What a plan would skip."""

    jobs: Sequence[PausedJob]

    @property
    def firings(self) -> int:
        return sum(one.firings for one in self.jobs)


async def show(request: Request) -> Response:
    """Return the page. If a plan was asked for, with what it would skip."""
    site = site_of(request)
    pauses = await site.reader.read("list_pauses", over=True, max_rows=MOST + 1)
    given = {name: queries.text(request, name) or "" for name in FIELDS}
    given |= {name: queries.moment_of(request, name) for name in ENDS}
    preview = None
    if queries.text(request, "preview") is not None:
        if not identity_of(request).is_operator:
            raise RefusedRequestError(f"{identity_of(request).name} may not plan a pause.")
        preview = await _preview(request, _plan(given, pauses.now), pauses.now)
    return await site.page(
        request, "pauses.html", pauses=pauses, most=MOST, given=given, preview=preview,
        most_jobs=MOST_JOBS, selected=selected, open_ended=OPEN_ENDED,
    )  # fmt: skip


async def plan(request: Request) -> Response:
    """Plan a pause."""
    site = site_of(request)
    form = await form_of(request)
    reading = await site.reader.read("list_pauses", over=True, max_rows=MOST + 1)
    given = {name: form.text(name) for name in FIELDS}
    given |= {name: form.moment(name) for name in ENDS}
    wanted = _plan(given, reading.now)
    call = calls.value_of(
        "plan_pause", reason=wanted.reason, begins=wanted.begins, until=wanted.until,
        job=wanted.job, queue=wanted.queue, owner=wanted.owner,
        labels=Jsonb(wanted.labels) if wanted.labels else None,
    )  # fmt: skip
    pause = await site.actor.call(call, identity_of(request))
    return site.done(request, f"Pause {pause} is planned.", PATH)


async def change(request: Request) -> Response:
    """Change a pause that has not begun. Empty fields change nothing."""
    site = site_of(request)
    form = await form_of(request)
    now = (await site.reader.read("list_pauses", over=False, max_rows=1)).now
    pause, until = form.whole("pause"), form.moment("until")
    call = calls.change_pause(
        pause,
        begins=queries.later(form.moment("from"), "from", now),
        until="infinity" if until == OPEN_END else queries.later(until, "until", now),
        reason=form.text("reason").strip() or None,
    )
    changed = await site.actor.call(call, identity_of(request))
    return site.done(request, f"Pause {pause} is {'changed' if changed else 'unchanged'}.", PATH)


async def end(request: Request) -> Response:
    """End a pause, or withdraw it."""
    site = site_of(request)
    pause = (await form_of(request)).whole("pause")
    ended = await site.actor.call(calls.value_of("end_pause", pause_id=pause), identity_of(request))
    text = "is ended" if ended else "was over already"
    return site.done(request, f"Pause {pause} {text}.", PATH)


def _plan(given: Mapping[str, str], now: datetime | None) -> Plan:
    """Return the plan that the fields describe. Raises HTTPException."""
    job, queue, owner = (given[name].strip() or None for name in ("job", "queue", "owner"))
    return Plan(
        job, queue, owner, _labels(given["labels"]),
        queries.later(given["from"], "from", now), queries.later(given["until"], "until", now),
        given["reason"].strip(),
    )  # fmt: skip


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(",") if text.strip() else ():
        key, _, value = part.strip().partition("=")
        if not key or not value or key in found:
            raise HTTPException(
                400, f"labels: {part.strip()[:100]!r}: write KEY=VALUE, separated by commas."
            )
        found[key] = value
    return found


async def _preview(request: Request, wanted: Plan, now: datetime | None) -> Preview:
    """Return what the plan would skip. Raises HTTPException."""
    if now is None:
        raise HTTPException(503, "The database does not respond.")
    begins = wanted.begins or now

    def compute(read: ReadRows) -> Preview:
        reports = Reports(read)
        rows = reports.selected_jobs(
            job=wanted.job, queue=wanted.queue, owner=wanted.owner, labels=wanted.labels
        )
        return Preview(list(paused_jobs(reports, rows, begins, wanted.until)))

    reader = site_of(request).reader
    try:
        computed = await reader.compute("pause", compute, plan=wanted, begins=begins)
    except InstantError as error:
        raise HTTPException(400, f"{error}.") from None
    if computed.value is None or computed.problem is not None:
        raise HTTPException(503, computed.problem or "The database does not respond.")
    return computed.value


ROUTES = [
    Route(PATH, show, methods=["GET"]),
    Route("/pauses/plan", plan, methods=["POST"]),
    Route("/pauses/change", change, methods=["POST"]),
    Route("/pauses/end", end, methods=["POST"]),
]
