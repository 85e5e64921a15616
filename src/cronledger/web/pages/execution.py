"""Execution: one execution with its attempts, and the actions on it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from cronledger.ledger import calls
from cronledger.ledger.following import Following
from cronledger.ledger.reports import Row
from cronledger.web import ansi, links
from cronledger.web.changes import changes
from cronledger.web.drawing.line import line
from cronledger.web.forms import form_of, whole
from cronledger.web.reading import Reading
from cronledger.web.redaction import Redaction
from cronledger.web.refresh import UNBUFFERED
from cronledger.web.site import identity_of, site_of

MOST_ATTEMPTS = 100
MOST_ALERTS = 20
MOST_BREACHES = 10
"""A plan_time has one for each kind of deadline."""
LAST_LINES = 20
"""The lines of the output beneath the error of a failed execution."""
_NOTHING = {"result": None, "output": None, "status": None, "attempt": 0, "number": 0}
UNKNOWN_END = ("stale_timeout", "shutdown", "not_ended")
CANCELLED = {
    "cancelled": "Execution {id} was waiting, and is CANCELLED.",
    "requested": "Execution {id} is requested to end. Its runner is notified.",
    "already_finished": "Execution {id} had ended already.",
    "busy": "Execution {id} is being written at this moment. Try again.",
}
RETRIED = {
    "retried": "Execution {id} has one more attempt, which is due now.",
    "brought_forward": "Execution {id} was awaiting a retry, which is due now.",
}


async def show(request: Request) -> Response:
    """Return the page of one execution."""
    site = site_of(request)
    execution = whole(links.field(request, "id"), "id")
    found = await site.reader.read("show_execution_head", id=execution)
    if not found.known:
        raise HTTPException(
            404 if found.problem is None else 503,
            found.problem
            or f"Execution {execution} does not exist. Its partition may have been "
            "dropped after the retention.",
        )
    (row,) = await site.expectations.of(found.known, found.now)
    scope = {"job": row["job_name"], "scope_kind": row["scope_kind"], "scope_id": row["scope_id"]}
    attempts, neighbours, success, breaches, alerts = await asyncio.gather(
        site.reader.read("list_attempts", id=execution, max_rows=MOST_ATTEMPTS + 1),
        site.reader.read("list_neighbours", at=row["plan_time"], **scope),
        site.reader.read(
            "show_last_success", at=row["plan_time"], revision=row["revision"],
            runner=row["runner_id"], **scope,
        ),
        site.reader.read(
            "list_breaches_of_scope", at=row["plan_time"], max_rows=MOST_BREACHES, **scope
        ),
        site.reader.read(
            "list_alerts", execution_id=execution, job=row["job_name"], since=row["created_at"],
            owner=None, labels=None, max_rows=MOST_ALERTS + 1,
        ),
    )  # fmt: skip
    return await site.page(
        request, "execution.html", row=row, found=found, attempts=attempts, neighbours=neighbours,
        success=success, changes=_changes(row, success, site.redaction),
        line=_line(row, attempts, found), breaches=breaches, alerts=alerts,
        most_alerts=MOST_ALERTS,
        contents=await _contents(request, execution), most_attempts=MOST_ATTEMPTS,
        may_cancel=row["status"] in ("PENDING", "RUNNING") or row["next_attempt_at"] is not None,
        may_retry=row["status"] in ("FAILED", "CANCELLED"),
        end_unknown=row["error_code"] in UNKNOWN_END and not row["allow_stale_reentry"],
    )  # fmt: skip


def _line(row: Row, attempts: Reading, found: Reading) -> Any:
    now = found.now or row["created_at"]
    return line(row["due_at"], attempts.known, row["finished_at"] or max(now, row["due_at"]))


async def _contents(request: Request, execution: int) -> Mapping[str, Any]:
    """Return result and output as text, and for an operator the payload.

    `problem`: why one of them could not be read.
    """
    site = site_of(request)
    read = await site.reader.read("show_outputs", id=execution)
    (stored,) = read.known or [_NOTHING]
    output = stored["output"] or ""
    found = {
        "result": site.redaction.text(stored["result"]), "problem": read.problem, "output": output,
        "shown": ansi.shown(output), "is_followed": stored["status"] in ("PENDING", "RUNNING"),
        "last_lines": ansi.last_lines(output, LAST_LINES) if stored["status"] == "FAILED" else None,
        "attempt": stored["attempt"], "number": stored["number"],
    }  # fmt: skip
    if not identity_of(request).is_operator:
        return found
    payload = await site.operators.read("show_payload_text", id=execution)
    (private,) = payload.known or [{"payload": None}]
    return found | {
        "payload": site.redaction.text(private["payload"]),
        "problem": payload.problem or read.problem,
    }


def _changes(row: Row, success: Reading, redaction: Redaction) -> list[tuple[str, object, object]]:
    """Return what differs from the last success: its name, the value then, and the value now."""
    if not success.known:
        return []
    (then,) = success.known
    found: list[tuple[str, object, object]] = [
        ("revision", then["revision"], row["revision"]),
        ("runner", then["runner_id"], row["runner_id"]),
        ("version of the runner", then["version"], then["new_version"]),
    ]
    definition = changes(then["definition"] or {}, then["new_definition"] or {}, redaction)
    return [change for change in found if change[1] != change[2]] + definition


async def output(request: Request) -> Response:
    """Return the stream of the output of a running execution."""
    site, given = site_of(request), request.query_params
    if site.followers.is_full:
        raise HTTPException(503, "This process cannot follow more outputs.")
    # A browser that connects again names the last event that it has received.
    attempt, _, number = request.headers.get("last-event-id", "").partition(".")
    following = Following(
        whole(given.get("id", ""), "id"),
        whole(attempt or given.get("attempt", "0"), "attempt"),
        whole(number or given.get("number", "0"), "number"),
    )
    stream = site.followers.stream(site, following)
    return StreamingResponse(stream, media_type="text/event-stream", headers=UNBUFFERED)


async def download(request: Request) -> Response:
    """Return the output as a file, with its colours."""
    execution = whole(request.query_params.get("id", ""), "id")
    read = await site_of(request).reader.read_once("show_outputs", id=execution)
    if not read.known:
        raise HTTPException(503 if read.problem else 404, read.problem or "Not Found")
    name = f"execution-{execution}.txt"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return PlainTextResponse(read.known[0]["output"] or "", headers=headers)


async def cancel(request: Request) -> Response:
    """Request that an execution ends."""
    form = await form_of(request)
    execution = form.whole("id")
    done = await site_of(request).actor.call(calls.cancel(execution), identity_of(request))
    text = CANCELLED[done].format(id=execution)
    return site_of(request).done(request, text, "/execution", id=execution)


async def retry(request: Request) -> Response:
    """Give an execution one more attempt."""
    form = await form_of(request)
    execution, force = form.whole("id"), form.text("force") == "yes"
    call = calls.retry(execution, force=force)
    done = await site_of(request).actor.call(call, identity_of(request))
    text = RETRIED[done].format(id=execution)
    return site_of(request).done(request, text, "/execution", id=execution)


ROUTES = [
    Route("/execution/output", output, methods=["GET"]),
    Route("/execution/output.txt", download, methods=["GET"]),
    Route("/execution/cancel", cancel, methods=["POST"]),
    Route("/execution/retry", retry, methods=["POST"]),
    *links.routes("/execution", show),
]
