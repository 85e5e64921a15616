"""What operators do with one job: run, pause, resume and backfill it, skip firings, adopt it."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.explain.adopting import Adoption, adoption
from cronledger.explain.firings import firings_in
from cronledger.explain.skipping import MOST, Skipping, skipping
from cronledger.ledger import calls
from cronledger.ledger.calls import Call
from cronledger.ledger.refusals import LedgerError
from cronledger.ledger.reports import ReadRows, Reports, Row
from cronledger.rules.calendars import Calendars
from cronledger.rules.cron import CronError
from cronledger.rules.instants import iso
from cronledger.rules.model import ScopeKey
from cronledger.rules.problems import ConfigurationError
from cronledger.rules.remedies import Surface, remedy
from cronledger.sources.backfill import past
from cronledger.web import queries
from cronledger.web.access.identity import RefusedRequestError
from cronledger.web.forms import Form, form_of, whole
from cronledger.web.pages.job import job_of
from cronledger.web.payloads import AGAIN, Entered, PayloadSchema, problem_of
from cronledger.web.site import Site, identity_of, site_of

MOST_BACKFILLED = 10_000
"""plan_times of one backfill, as in one call of the SQL function."""
MOST_LISTED = 100
LISTED = 20
"""Firings of a planned skip that are listed."""
VALUE = "value."
"""The fields of a payload have names that begin with this."""
REPROCESS = {
    "none": "only plan_times without an execution",
    "failed": "also those that failed or were cancelled",
    "all": "all, also those that succeeded",
}


def _operator(request: Request) -> Site:
    identity = identity_of(request)
    if not identity.is_operator:
        raise RefusedRequestError(f"{identity.name} may read this page, but may not act on it.")
    return site_of(request)


def _key(get: Callable[[str], str | None], row: Row) -> ScopeKey:
    kind = get("scope_kind") or row["scope_kind"]
    return ScopeKey(row["name"], kind, get("scope") or "global")


def _back(key: ScopeKey) -> dict[str, str]:
    return {"name": key.job_name, "scope_kind": key.scope_kind, "scope": key.scope_id}


# --- run now -------------------------------------------------------------------------------------


async def ask_run(request: Request) -> Response:
    """Return the form for an execution that is due now, with a field for each property."""
    site = _operator(request)
    row, _ = await job_of(request)
    key = _key(lambda name: queries.text(request, name), row)
    schema = PayloadSchema(row["payload_schema"], site.redaction)
    as_json = queries.text(request, "as") == "json"
    fields = [] if as_json else await asyncio.to_thread(schema.fields)
    return await _run_form(request, row, key, Entered(None, fields))


async def run(request: Request) -> Response:
    """Create an execution that is due now; with a bad payload, return the form with the error."""
    site = _operator(request)
    form = await form_of(request)
    row, _ = await job_of(request, form.text("name"))
    key = _key(form.text, row)
    schema = PayloadSchema(row["payload_schema"], site.redaction)
    text, given = form.text("payload").strip(), form.starting_with(VALUE)
    if given:
        entered = await asyncio.to_thread(schema.read_fields, given)
    else:
        entered = await asyncio.to_thread(schema.read_json, text)
    if entered.is_refused:
        shown, had_hidden = await asyncio.to_thread(schema.repeated, text)
        if had_hidden:
            entered = replace(entered, problem=f"{entered.problem}. {AGAIN}")
        return await _run_form(request, row, key, entered, shown)
    call = calls.value_of(
        "trigger", job=key.job_name, scope_kind=key.scope_kind, scope_id=key.scope_id,
        payload=entered.payload, force=form.text("force") == "yes",
    )  # fmt: skip
    made = await site.actor.call(call, identity_of(request))
    text = f"Execution {made} of {key.job_name} is due now."
    return site.done(request, text, "/execution", id=made)


async def _run_form(
    request: Request, row: Row, key: ScopeKey, entered: Entered, payload: str = ""
) -> Response:
    site, schema = site_of(request), row["payload_schema"]
    return await site.page(
        request, "job_run.html", status=400 if entered.is_refused else 200, row=row, key=key,
        entered=entered, payload=payload, back=_back(key), value=VALUE,
        schema=_indented(site.redaction.schema(schema)),
        problem_of_schema=await asyncio.to_thread(problem_of, schema),
    )  # fmt: skip


def _indented(schema: object) -> str | None:
    return None if schema is None else json.dumps(schema, indent=2, ensure_ascii=False)


# --- pause and resume ----------------------------------------------------------------------------


async def ask_pause(request: Request) -> Response:
    """Return the form for a pause; once it has an end, with the firings that it would skip."""
    _operator(request)
    row, now = await job_of(request)
    given = queries.moment_of(request, "until")
    until = queries.later(given, "until", now)
    key = _key(lambda name: queries.text(request, name), row)
    calendars = await site_of(request).reader.calendars([row])
    return await site_of(request).page(
        request, "job_pause.html", row=row, until=until,
        given=given, reason=queries.text(request, "reason") or "",
        skipped=until and await asyncio.to_thread(_firings, row, calendars, key, now, until),
        back=_back(key),
    )  # fmt: skip


def _firings(row: Row, calendars: Calendars, key: ScopeKey, now: datetime, until: datetime) -> int:
    """Return the number of firings of one scope in (now, until]."""
    try:
        return firings_in(row, key.scope_id, now, calendars, until).count()
    except CronError:
        return 0  # the schedule is invalid, and fires nothing


async def pause(request: Request) -> Response:
    """Pause the job."""
    site = _operator(request)
    form = await form_of(request)
    row, now = await job_of(request, form.text("name"))
    until = queries.later(form.moment("until"), "until", now)
    call = calls.pause(row["name"], form.text("reason").strip() or None, until=until)
    paused = await site.actor.call(call, identity_of(request))
    text = f"{row['name']} is paused." if paused else "It was paused already."
    return site.done(request, text, "/job", **_back(_key(form.text, row)))


async def resume(request: Request) -> Response:
    """Resume the job."""
    site = _operator(request)
    form = await form_of(request)
    row, _ = await job_of(request, form.text("name"))
    resumed = await site.actor.call(calls.resume(row["name"]), identity_of(request))
    text = f"{row['name']} is resumed." if resumed else "It was not paused."
    return site.done(request, text, "/job", **_back(_key(form.text, row)))


# --- skips ---------------------------------------------------------------------------------------


async def ask_skip(request: Request) -> Response:
    """Return the form for a planned skip, with the firings that it would skip."""
    _operator(request)
    row, _ = await job_of(request)
    key = _key(lambda name: queries.text(request, name), row)
    found, problem = None, None
    first, last = (queries.moment_of(request, name) for name in ("from", "through"))
    if first:
        only = key if queries.text(request, "only") else None
        found, problem = await _skipping(request, row, only, first, last or first)
    return await site_of(request).page(
        request, "job_skip.html", status=200 if problem is None else 400, row=row, key=key,
        given=request.query_params, first=first, last=last, found=found, problem=problem,
        most=MOST, listed=LISTED, back=_back(key),
    )  # fmt: skip


async def skip(request: Request) -> Response:
    """Skip the firings that were shown."""
    site = _operator(request)
    form = await form_of(request)
    row, _ = await job_of(request, form.text("name"))
    key = _key(form.text, row)
    only = key if form.text("only") else None
    first = form.moment("from")
    last = form.moment("through") or first
    _, problem = await _skipping(request, row, only, first, last)
    if problem is not None:
        raise HTTPException(400, problem)
    call = calls.skip(
        row["name"], queries.absolute(first, "from"), form.text("reason").strip(),
        through=queries.absolute(last, "through"), scope=only and only.scope_id,
        scope_kind=only and only.scope_kind,
    )  # fmt: skip
    made = await site.actor.call(call, identity_of(request))
    return site.done(request, f"Planned skip {made} was created.", "/job", **_back(key))


async def unskip(request: Request) -> Response:
    """Withdraw a planned skip."""
    site = _operator(request)
    form = await form_of(request)
    row, _ = await job_of(request, form.text("name"))
    number = whole(form.text("skip_id"), "skip_id")
    outcome = await site.actor.call(calls.unskip(number), identity_of(request))
    text = f"Planned skip {number} was {outcome}."
    return site.done(request, text, "/job", **_back(_key(form.text, row)))


async def _skipping(
    request: Request, row: Row, only: ScopeKey | None, first: str, last: str
) -> tuple[Skipping | None, str | None]:
    """Return what a planned skip would skip, or why it would skip nothing."""
    start, end = queries.absolute(first, "from"), queries.absolute(last, "through")
    scope = None if only is None else only.scope_id

    def read_firings(read: ReadRows) -> Skipping | str:
        try:
            found = skipping(Reports(read), row, start, end, scope)
        except CronError as error:
            return f"{error}."
        if found.firings:
            return found
        near = " and ".join(iso(one) for one in found.nearest)
        return (
            f"No firing lies in this range; the nearest are {near}."
            if near
            else "The job has no firings."
        )

    computed = await site_of(request).reader.compute(
        "skipping", read_firings, job=row["name"], first=start, last=end, scope=scope
    )
    if computed.value is None or computed.problem is not None:
        raise HTTPException(503, computed.problem or "The database does not respond.")
    found = computed.value
    return (None, found) if isinstance(found, str) else (found, None)


# --- adoption ------------------------------------------------------------------------------------


async def ask_adopt(request: Request) -> Response:
    """Return the form for an adoption; once it has an instant, with what it would do."""
    site = _operator(request)
    row, _ = await job_of(request)
    key = _key(lambda name: queries.text(request, name), row)
    at, found, problem = queries.moment_of(request, "at"), None, None
    if at:
        back = queries.text(request, "back") is not None
        try:
            call = await _adoption(request, row, at, back=back, preview=True)
            found = await site.actor.call(call, identity_of(request))
        except (LedgerError, ValueError) as error:
            problem = str(error)
    return await site.page(
        request, "job_adopt.html", status=200 if problem is None else 400, row=row, at=at,
        given=request.query_params, found=found, problem=problem, back=_back(key),
    )  # fmt: skip


async def adopt(request: Request) -> Response:
    """Move the job between its two schedulers."""
    site = _operator(request)
    form = await form_of(request)
    row, _ = await job_of(request, form.text("name"))
    at, back, reason = form.moment("at"), form.text("back") != "", form.text("reason").strip()
    try:
        call = await _adoption(request, row, at, back=back, reason=reason or None)
    except ValueError as error:
        raise HTTPException(400, f"Job {row['name']}: {error}.") from None
    found = await site.actor.call(call, identity_of(request))
    warning = "" if found.warning is None else f" Warning: {found.warning}."
    return site.done(request, f"{found}.{warning}", "/job", **_back(_key(form.text, row)))


async def _adoption(
    request: Request, row: Row, given: str, *, back: bool, reason: str | None = None,
    preview: bool = False,
) -> Call[Adoption]:  # fmt: skip
    """Return the call of an adoption. Raises HTTPException, ValueError."""
    at = queries.absolute(given, "at")
    computed = await site_of(request).reader.compute(
        "adoption",
        lambda read: adoption(Reports(read), row, at, back=back, reason=reason, preview=preview),
        row=row, at=at, back=back, reason=reason, preview=preview,
    )  # fmt: skip
    if computed.value is None or computed.problem is not None:
        raise HTTPException(503, computed.problem or "The database does not respond.")
    return computed.value


# --- backfill ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill that was asked for: its plan_times, and what would become of each."""

    plan_times: Sequence[datetime]
    through: datetime
    rows: Sequence[Row]

    @property
    def counts(self) -> Counter[str]:
        """The plan_times by what would be done: make, retry, repeat, leave."""
        return Counter(row["action"] or "leave" for row in self.rows)


async def ask_backfill(request: Request) -> Response:
    """Return the form for a backfill; once it has a range, with what it would do."""
    _operator(request)
    row, now = await job_of(request)
    key = _key(lambda name: queries.text(request, name), row)
    first, last = queries.instant(request, "from", now), queries.instant(request, "to", now)
    reprocess = _reprocess(queries.text(request, "reprocess") or "none")
    found, problem = None, None
    if first is not None:
        try:
            found = await _planned(request, key, first, last or now, reprocess, now)
        except (ConfigurationError, ValueError) as error:
            problem = remedy(str(error), Surface.PAGE)
    return await site_of(request).page(
        request, "job_backfill.html", status=200 if problem is None else 400, row=row, key=key,
        first=first, last=last or now, reprocess=reprocess,
        given={name: queries.moment_of(request, name) for name in ("from", "to")},
        choices=REPROCESS, found=found, problem=problem, most=MOST_LISTED, ended_before=now,
        back=_back(key),
    )  # fmt: skip


async def backfill(request: Request) -> Response:
    """Do the backfill that was shown."""
    site = _operator(request)
    form = await form_of(request)
    row, _ = await job_of(request, form.text("name"))
    key = _key(form.text, row)
    first, last, before = (_instant(form, name) for name in ("from", "to", "ended_before"))
    reprocess = _reprocess(form.text("reprocess"))
    try:
        found = await _planned(request, key, first, last, reprocess, before)
    except (ConfigurationError, ValueError) as error:
        raise HTTPException(400, remedy(str(error), Surface.PAGE)) from None
    call = calls.function(
        "backfill", job=key.job_name, scope_kind=key.scope_kind, scope_id=key.scope_id,
        plan_times=list(found.plan_times), reprocess=reprocess, ended_before=before,
    )  # fmt: skip
    done = await site.actor.call(call, identity_of(request))
    text = (
        f"Backfill of {key.job_name}: {done['made']:,} executions were created, {done['retried']:,}"
        f" are retried, {done['left_alone']:,} plan_times were left as they are."
    )
    return site.done(request, text, "/job", **_back(key))


async def _planned(  # noqa: PLR0917
    request: Request, key: ScopeKey, first: datetime, last: datetime, reprocess: str,
    before: datetime,
) -> Backfill:  # fmt: skip
    """Return what a backfill of [first, last] would do. Raises ConfigurationError, ValueError."""

    def plan(read: ReadRows) -> Backfill:
        reports = Reports(read)
        found = past(reports, key, first, last, MOST_BACKFILLED)
        rows = reports.backfill_actions(key, found.plan_times, reprocess, before)
        return Backfill(found.plan_times, found.through, rows)

    if last < first:
        raise ValueError("The range ends before it begins: `to` lies before `from`.")
    computed = await site_of(request).reader.compute(
        "backfill", plan, key=key, first=first, last=last, reprocess=reprocess, before=before
    )
    if computed.value is None or computed.problem is not None:
        raise HTTPException(503, computed.problem or "The database does not respond.")
    return computed.value


def _reprocess(given: str) -> str:
    if given not in REPROCESS:
        raise HTTPException(400, f"reprocess is one of {', '.join(REPROCESS)}, not {given[:50]!r}.")
    return given


def _instant(form: Form, name: str) -> datetime:
    given = form.text(name)
    if not given:
        raise HTTPException(400, f"The form has no {name}.")
    return queries.absolute(given, name)


ROUTES = [
    Route("/job-run", ask_run, methods=["GET"]),
    Route("/job-run", run, methods=["POST"]),
    Route("/job-pause", ask_pause, methods=["GET"]),
    Route("/job-pause", pause, methods=["POST"]),
    Route("/job-resume", resume, methods=["POST"]),
    Route("/job-skip", ask_skip, methods=["GET"]),
    Route("/job-skip", skip, methods=["POST"]),
    Route("/job-unskip", unskip, methods=["POST"]),
    Route("/job-adopt", ask_adopt, methods=["GET"]),
    Route("/job-adopt", adopt, methods=["POST"]),
    Route("/job-backfill", ask_backfill, methods=["GET"]),
    Route("/job-backfill", backfill, methods=["POST"]),
]
