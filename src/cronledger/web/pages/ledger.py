"""Ledger: executions and skips in one stream, for people and as CSV or JSON."""

import base64
import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.ledger.reports import Row
from cronledger.web import queries
from cronledger.web.formats import iso
from cronledger.web.reading import Reading
from cronledger.web.site import Entry, Links, site_of

MOST = 100
"""Rows of a page."""
MOST_EXPORTED = 10_000
"""Rows of an export. It names the address of the next ones."""
WINDOW = timedelta(days=1)
AHEAD = timedelta(hours=1)
"""Executions that were enqueued for later lie after now."""
OUTCOMES = ("SUCCESS", "FAILED", "RUNNING", "PENDING", "CANCELLED", "SKIPPED")
COLUMNS = (
    "kind", "job_name", "scope_kind", "scope_id", "plan_time", "through_plan_time", "count",
    "outcome", "reason", "id", "attempt", "trigger", "started_at", "finished_at", "duration",
    "runner_id", "revision", "detail",
)  # fmt: skip
_KEY = ("plan_time", "job_name", "scope_kind", "scope_id", "kind")

ENTRY = Entry("Ledger", "/ledger")


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address asks for."""

    job: str | None
    scope: str | None
    outcomes: list[str]
    reason: str | None
    runner: str | None
    since: datetime
    until: datetime
    before: tuple[Any, ...] | None

    @property
    def query(self) -> dict[str, object]:
        """The fields that the address had, without the place in the stream."""
        return {
            "job": self.job, "scope": self.scope, "outcome": self.outcomes, "reason": self.reason,
            "runner": self.runner,
        }  # fmt: skip


async def _filters(request: Request) -> Filters:
    head = await site_of(request).reader.read("read_head")
    now = head.now
    if now is None:
        raise HTTPException(503, head.problem or "The database does not respond.")
    until = queries.instant(request, "until", now) or _minute(now + AHEAD)
    since = queries.instant(request, "since", now) or min(until, _minute(now)) - WINDOW
    if since >= until:
        raise HTTPException(400, f"since ({iso(since)}) is not before until ({iso(until)}).")
    return Filters(
        job=queries.text(request, "job"), scope=queries.text(request, "scope"),
        outcomes=queries.choices(request, "outcome", OUTCOMES),
        reason=queries.text(request, "reason"), runner=queries.text(request, "runner"),
        since=since, until=until, before=_before(request),
    )  # fmt: skip


def _minute(at: datetime) -> datetime:
    """Round up, so that requests of one minute are the same panel."""
    return at.replace(second=0, microsecond=0) + timedelta(minutes=1)


def _before(request: Request) -> tuple[Any, ...] | None:
    given = request.query_params.get("before")
    if not given:
        return None
    try:
        at, *names = json.loads(base64.urlsafe_b64decode(given))
        if len(names) == len(_KEY) - 1 and all(isinstance(x, str) and "\0" not in x for x in names):
            return datetime.fromisoformat(at), *names
    except (ValueError, TypeError, KeyError):
        pass
    raise HTTPException(400, "before is not a place in the ledger; open the first page again.")


def _place(row: Row) -> str:
    """Return the value of `before` for the rows after this one."""
    key = [iso(row["plan_time"]), *(row[name] for name in _KEY[1:])]
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


async def _read(request: Request, filters: Filters, most: int) -> Reading:
    """Read a page, which is kept for a moment, or an export, which is not."""
    before = filters.before or (None,) * len(_KEY)
    params: dict[str, Any] = {
        "since": filters.since, "until": filters.until, "outcomes": filters.outcomes or None,
        "reason": filters.reason, "runner": filters.runner, "max_rows": most + 1,
        **dict(zip(("before_time", "before_job", "before_scope_kind", "before_scope_id",
                    "before_kind"), before, strict=True)),
    }  # fmt: skip
    reader = site_of(request).reader
    read = reader.read if most == MOST else reader.read_once
    if filters.job is None:
        return await read("list_ledger", **params)
    return await read("list_ledger_of_job", job=filters.job, scope=filters.scope, **params)


def _following(reading: Reading, filters: Filters, most: int) -> Mapping[str, object] | None:
    """Return the query of the rows that follow, or None if there are none."""
    if not reading.has_more(most):
        return None
    place = _place(reading.first(most)[-1])
    return filters.query | {
        "since": iso(filters.since), "until": iso(filters.until), "before": place
    }  # fmt: skip


async def show(request: Request) -> Response:
    """Return a page of the stream."""
    filters = await _filters(request)
    reading = await _read(request, filters, MOST)
    fields = {name: request.query_params.get(name, "") for name in ("since", "until")}
    return await site_of(request).page(
        request, "ledger.html", reading=reading, filters=filters, outcomes=OUTCOMES, most=MOST,
        following=_following(reading, filters, MOST), fields=fields, most_exported=MOST_EXPORTED,
        window={"since": iso(filters.since), "until": iso(filters.until)},
    )  # fmt: skip


async def export_json(request: Request) -> Response:
    """Return the filtered rows as JSON: `rows`, and `next`, the address of those that follow."""
    rows, following = await _exported(request, "/ledger.json")
    text = json.dumps({"rows": rows, "next": following}, ensure_ascii=False)
    return Response(text, media_type="application/json")


async def export_csv(request: Request) -> Response:
    """Return the filtered rows as CSV. The header `Link` has the address of those that follow."""
    rows, following = await _exported(request, "/ledger.csv")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_harmless(row[name]) for name in COLUMNS] for row in rows)
    headers = {"Content-Disposition": 'attachment; filename="ledger.csv"'}
    if following is not None:
        headers["Link"] = f'<{following}>; rel="next"'
    return Response(text.getvalue(), media_type="text/csv", headers=headers)


async def _exported(request: Request, path: str) -> tuple[list[dict[str, Any]], str | None]:
    filters = await _filters(request)
    reading = await _read(request, filters, MOST_EXPORTED)
    if reading.problem is not None:
        raise HTTPException(503, reading.problem)
    following = _following(reading, filters, MOST_EXPORTED)
    rows = [{name: _plain(row[name]) for name in COLUMNS} for row in reading.first(MOST_EXPORTED)]
    return rows, None if following is None else Links(request)(path, **following)


def _plain(value: object) -> object:
    """Return a value as JSON has it: instants in ISO 8601, durations in seconds."""
    match value:
        case datetime():
            return iso(value)
        case timedelta():
            return value.total_seconds()
    return value


def _harmless(value: object) -> object:
    """Prefix text that a spreadsheet would evaluate."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value


ROUTES = [
    Route("/ledger", show, methods=["GET"]),
    Route("/ledger.json", export_json, methods=["GET"]),
    Route("/ledger.csv", export_csv, methods=["GET"]),
]
