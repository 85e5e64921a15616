"""Verify and doctor: the recorded runs of `verify`, a run that people start, and the checks."""

import asyncio
from collections import Counter
from datetime import timedelta

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.web import queries
from cronledger.web.forms import form_of, whole
from cronledger.web.pages.job import job_of
from cronledger.web.site import Entry, identity_of, site_of
from cronledger.web.verifying import MOST_KEPT, BusyError, VerifyRequest

PATH = "/verify"
MOST_RUNS = 20
NEWEST = 2**63 - 1
WINDOWS = {
    "all": ("all kept history", None),
    "7d": ("the last week", timedelta(days=7)),
    "1d": ("the last day", timedelta(days=1)),
}
"""The plan_times that a run checks, as the form offers them."""
WORDS = {
    "problem": "problem", "warning": "warning", "unchecked": "not checked", "ok": "ok",
}  # fmt: skip
PLURALS = {"problem": "problems", "warning": "warnings"}
SEVERITIES = tuple(WORDS)

ENTRY = Entry("Verify", PATH)


async def show(request: Request) -> Response:
    """Return the page."""
    site = site_of(request)
    before = whole(queries.text(request, "before") or str(NEWEST), "before")
    last, violating, runs, checks = await asyncio.gather(
        site.reader.read("show_verification"),
        site.reader.read("list_violating_runs", max_rows=MOST_RUNS),
        site.reader.read("list_verifications", before=before, max_rows=MOST_RUNS + 1),
        site.examiner.read(),
    )
    counts = Counter(row["severity"] for row in checks.known)
    own = site.verifier.run
    names = sorted({one.job_name for one in own.kept if one.job_name is not None}) if own else []
    zones = await site.reader.read("list_zones", names=names, max_rows=MOST_KEPT)
    return await site.page(
        request, "verification.html", last=last, violating=violating, runs=runs, most=MOST_RUNS,
        before=before, newest=NEWEST, own=own, checks=checks, counts=counts,
        words=WORDS, plurals=PLURALS,
        findings=sorted(
            (row for row in checks.known if row["severity"] != "ok"),
            key=lambda row: SEVERITIES.index(row["severity"]),
        ),
        sound=[row for row in checks.known if row["severity"] == "ok"],
        severities=SEVERITIES, windows=WINDOWS,
        zones={row["name"]: row["timezone"] for row in zones.known},
    )  # fmt: skip


async def verify(request: Request) -> Response:
    """Start a run of `verify` in this process, and return to the page, which shows it."""
    site, form = site_of(request), await form_of(request)
    window = form.text("window")
    if window not in WINDOWS:
        raise HTTPException(400, f"window is one of {', '.join(WINDOWS)}, not {window[:100]!r}.")
    job = form.text("job") or None
    if job is not None:
        await job_of(request, job)
    words, length = WINDOWS[window]
    head = await site.reader.read("read_head", fresh=0.0)
    if head.now is None or head.problem is not None:
        raise HTTPException(503, head.problem or "The database does not respond.")
    since = None if length is None else head.now - length
    try:
        run = await site.verifier.start(VerifyRequest(job, since, identity_of(request).name))
    except BusyError as error:
        raise HTTPException(409, f"{error} Start another run once it has ended.") from None
    text = f"Run {run} checks {words} of {job or 'all jobs'}."
    return site.done(request, text, PATH)


ROUTES = [
    Route(PATH, show, methods=["GET"]),
    Route(PATH, verify, methods=["POST"]),
]
