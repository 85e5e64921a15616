"""Retry or cancel many executions of the page Ledger: those that are ticked, or all that match."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.ledger import calls
from cronledger.ledger.values import ManyResult
from cronledger.rules.instants import iso
from cronledger.web.forms import Form, form_of, whole
from cronledger.web.pages import ledger
from cronledger.web.site import identity_of, site_of

MOST = 1_000
"""Executions of one action, as `retry_many` and `cancel_many` take them."""
MOST_GROUPS = 12
"""Lines of a preview. What becomes of further executions is one line."""
WORDS = {
    "retried": "Retried", "brought_forward": "Brought forward", "cancelled": "Cancelled",
    "requested": "Requested to end", "left": "Left as they are", "busy": "Busy",
    "already_finished": "Ended already", "unknown": "Unknown",
}  # fmt: skip


async def retry(request: Request) -> Response:
    """Show what a retry would do, or retry."""
    return await _act(request, "retry", calls.retry_many)


async def cancel(request: Request) -> Response:
    """Show what cancelling would do, or cancel."""
    return await _act(request, "cancel", calls.cancel_many)


async def _act(
    request: Request, verb: str, many: Callable[..., calls.Call[list[ManyResult]]]
) -> Response:
    form = await form_of(request)
    filters = await ledger.filters_of(request)
    site, kept = site_of(request), _kept(filters)
    if form.text("confirmed") == "yes":
        ids = _ticked(form)
        call = many(ids, form.text("reason").strip() or None)
        found = await site.actor.call(call, identity_of(request))
        return site.done(request, _sentence(found), "/ledger", **kept)
    every = form.text("every") == "yes"
    ids = await _matching(request, filters) if every else _ticked(form)
    found = await site.actor.call(many(ids, preview=True), identity_of(request))
    groups = Counter((one.result, one.detail or "") for one in found).most_common()
    changed = [one.execution_id for one in found if one.changed]
    return await site.page(
        request, "ledger_change.html", verb=verb, changed=changed,
        groups=groups[:MOST_GROUPS], further=sum(count for _, count in groups[MOST_GROUPS:]),
        words=WORDS, kept=kept,
    )  # fmt: skip


def _ticked(form: Form) -> list[int]:
    ids = [whole(text, "id") for text in form.texts("id")]
    if not ids:
        raise HTTPException(400, "No execution is chosen. Choose some, or all that match.")
    if len(ids) > MOST:
        raise HTTPException(400, f"{len(ids):,} executions are chosen: choose at most {MOST:,}.")
    return ids


async def _matching(request: Request, filters: ledger.Filters) -> list[int]:
    """Return the executions that match the filters. Raises HTTPException."""
    outcomes = [one for one in filters.outcomes or ledger.OUTCOMES if one != ledger.SKIPPED]
    if not outcomes:
        raise HTTPException(400, "Only skips match, and a skip has no execution to act on.")
    found = await ledger.search(request, replace(filters, outcomes=outcomes, before=None), MOST)
    if found.reading.problem is not None:
        raise HTTPException(503, found.reading.problem)
    if found.following is not None:
        raise HTTPException(
            400, f"More than {MOST:,} executions match, or too many rows have to be searched."
            " Use narrower filters, such as an outcome, a job or a shorter window.",
        )  # fmt: skip
    if not found.reading.known:
        raise HTTPException(400, "No execution matches.")
    return [row["id"] for row in found.reading.known]


def _sentence(found: Sequence[ManyResult]) -> str:
    counts = Counter(one.result for one in found)
    return " ".join(f"{WORDS[result]}: {count:,}." for result, count in counts.most_common())


def _kept(filters: ledger.Filters) -> dict[str, object]:
    return filters.query | {"since": iso(filters.since), "until": iso(filters.until)}


ROUTES = [
    Route("/ledger/retry", retry, methods=["POST"]),
    Route("/ledger/cancel", cancel, methods=["POST"]),
]
