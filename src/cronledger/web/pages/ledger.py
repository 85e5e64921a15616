"""Ledger: executions and skips in one stream, for people and as CSV or JSON."""

import asyncio
import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.ledger.reports import Row
from cronledger.rules.instants import iso
from cronledger.rules.model import SkipReason
from cronledger.web import formats, owners, queries
from cronledger.web.folding import Line, folded
from cronledger.web.links import Links, address
from cronledger.web.reading import Reading
from cronledger.web.site import ZONE, Entry, identity_of, site_of

MOST = 100
"""Rows of a page."""
MOST_READ = 20_000
"""Rows that are searched for those of a page. Where the search stopped, the next page goes on."""
MOST_EXPORTED = 10_000
"""Rows of an export. It names the address of the next ones."""
MOST_READ_FOR_EXPORT = 200_000
MOST_VIEWS = 50
"""Saved views of a person, as `save_view` permits."""
WINDOW = timedelta(days=1)
AHEAD = timedelta(hours=1)
"""Executions that were enqueued for later lie after now."""
SKIPPED = "SKIPPED"
OUTCOMES = ("SUCCESS", "FAILED", "RUNNING", "PENDING", "CANCELLED", SKIPPED)
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
    owner: str | None
    label: str | None
    since: datetime
    until: datetime
    before: tuple[Any, ...] | None
    unfold: str | None

    @property
    def kinds(self) -> list[str]:
        """The kinds of rows that have one of these outcomes."""
        if not self.outcomes:
            return ["execution", "skip"]
        skips = ["skip"] if SKIPPED in self.outcomes else []
        return [*skips, "execution"] if {*self.outcomes} - {SKIPPED} else skips

    @property
    def match_all(self) -> bool:
        """Whether every row of the window and the job matches."""
        others = (self.reason, self.runner, self.owner, self.label)
        return not self.outcomes and all(other is None for other in others)

    @property
    def query(self) -> dict[str, object]:
        """The fields that the address had, without the place in the stream."""
        return {
            "job": self.job, "scope": self.scope, "outcome": self.outcomes, "reason": self.reason,
            "runner": self.runner, "owner": self.owner, "label": self.label,
            "unfold": self.unfold,
        }  # fmt: skip


async def filters_of(request: Request) -> Filters:
    """Return what the address asks for. Raises HTTPException."""
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
        **owners.chosen(request), since=since, until=until, before=_before(request),
        unfold="yes" if request.query_params.get("unfold") == "yes" else None,
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


@dataclass(frozen=True, slots=True)
class Found:
    """Rows that match. `searched_to`: the search stopped at this plan_time, before it had enough.

    `following`: the query of the rows after these, or None if there are none.
    """

    reading: Reading
    searched_to: datetime | None
    following: Mapping[str, object] | None


async def search(request: Request, filters: Filters, most: int) -> Found:
    """Return at most this many rows: those of a page are kept for a moment, others are not."""
    before = filters.before or (None,) * len(_KEY)
    is_page = most == MOST
    params: dict[str, Any] = {
        "since": filters.since, "until": filters.until, "outcomes": filters.outcomes or None,
        "reason": filters.reason, "runner": filters.runner, "of_kinds": filters.kinds,
        "owner": filters.owner, "label": filters.label,
        "max_rows": most + 1, "max_read": MOST_READ if is_page else MOST_READ_FOR_EXPORT,
        **dict(zip(("before_time", "before_job", "before_scope_kind", "before_scope_id",
                    "before_kind"), before, strict=True)),
    }  # fmt: skip
    reader = site_of(request).reader
    read = reader.read if is_page else reader.read_once
    if filters.job is None:
        return _found(await read("list_ledger", **params), filters, most)
    params["max_of_scope"] = most + 1 if filters.match_all else params["max_read"]
    reading = await read("list_ledger_of_job", job=filters.job, scope=filters.scope, **params)
    return _found(reading, filters, most)


def _found(reading: Reading, filters: Filters, most: int) -> Found:
    if reading.rows is None:
        return Found(reading, None, None)
    rows = [row for row in reading.rows if row["is_match"]]
    last, searched_to = None, None
    if len(reading.rows) > most:
        last = rows[most - 1]
    elif reading.rows and reading.rows[-1]["is_last_read"]:
        last = reading.rows[-1]
        searched_to = last["plan_time"]
    following = None if last is None else filters.query | {
        "since": iso(filters.since), "until": iso(filters.until), "before": _place(last)
    }  # fmt: skip
    return Found(replace(reading, rows=rows), searched_to, following)


async def show(request: Request) -> Response:
    """Return a page of the stream."""
    filters = await filters_of(request)
    person = identity_of(request).name
    found, sources, views = await asyncio.gather(
        search(request, filters, MOST), owners.sources(request),
        site_of(request).reader.read("list_saved_views", person=person, max_rows=MOST_VIEWS),
    )  # fmt: skip
    fields = _window(request)
    return await site_of(request).page(
        request, "ledger.html", reading=found.reading, filters=filters, outcomes=OUTCOMES,
        reasons=sorted(SkipReason),
        most=MOST, following=found.following, searched_to=found.searched_to, fields=fields,
        lines=_lines(found.reading, filters), chips=_chips(filters, fields),
        place=request.query_params.get("before"), presets=_presets(found.reading.now, request),
        most_exported=MOST_EXPORTED, owners=owners.distinct(sources, "owner"),
        window={"since": iso(filters.since), "until": iso(filters.until)}, views=views,
        viewed=viewed(request, filters), here_saved=address("/ledger", viewed(request, filters)),
    )  # fmt: skip


def viewed(request: Request, filters: Filters) -> dict[str, object]:
    """Return the filters of a view as the address has them: `since=6h` stays a duration."""
    return filters.query | dict(_window(request))


def _window(request: Request) -> dict[str, str]:
    return {name: queries.moment_of(request, name) for name in ("since", "until")}


def _lines(reading: Reading, filters: Filters) -> list[Line]:
    """Return the lines of a page. Successes are not folded if the address asks for them."""
    rows = reading.first(MOST)
    is_unfolded = filters.unfold is not None or filters.outcomes == ["SUCCESS"]
    return [Line([row]) for row in rows] if is_unfolded else folded(rows)


def _chips(filters: Filters, fields: Mapping[str, str]) -> list[tuple[str, dict[str, object]]]:
    """Return the active filters: words for each, and the fields of the address without it."""
    query: dict[str, object] = {**filters.query, **{k: v for k, v in fields.items() if v}}
    chips: list[tuple[str, dict[str, object]]] = []
    for name, value in query.items():
        for one in filters.outcomes if name == "outcome" else [value] if value else []:
            left = [x for x in filters.outcomes if x != one] if name == "outcome" else None
            words = "each execution" if name == "unfold" else f"{name}: {one}"
            chips.append((words, query | {name: left}))
    return chips


def _presets(now: datetime | None, request: Request) -> list[tuple[str, dict[str, object]]]:
    """Return addresses that people often need. Today begins at midnight in the chosen zone."""
    if now is None:
        return []
    here = now.astimezone(formats.zone_of(request.cookies.get(ZONE)))
    today = iso(here.replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC))
    return [
        ("Failed today", {"outcome": "FAILED", "since": today}),
        ("Running", {"outcome": "RUNNING", "since": "7d"}),
        ("Skipped today", {"outcome": SKIPPED, "since": today}),
    ]


async def export_json(request: Request) -> Response:
    """Return the filtered rows as JSON: `rows`, and `next`, the address of those that follow."""
    rows, following = await _exported(request, "/ledger.json")
    text = await asyncio.to_thread(_as_json, rows, following)
    return Response(text, media_type="application/json")


def _as_json(rows: Sequence[Row], following: str | None) -> str:
    return json.dumps(
        {"rows": [_plain(row) for row in rows], "next": following}, ensure_ascii=False
    )


async def export_csv(request: Request) -> Response:
    """Return the filtered rows as CSV. The header `Link` has the address of those that follow."""
    rows, following = await _exported(request, "/ledger.csv")
    text = await asyncio.to_thread(_as_csv, rows)
    headers = {"Content-Disposition": 'attachment; filename="ledger.csv"'}
    if following is not None:
        headers["Link"] = f'<{following}>; rel="next"'
    return Response(text, media_type="text/csv", headers=headers)


def _as_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_harmless(value) for value in _plain(row).values()] for row in rows)
    return text.getvalue()


async def _exported(request: Request, path: str) -> tuple[list[Row], str | None]:
    filters = await filters_of(request)
    found = await search(request, filters, MOST_EXPORTED)
    reading = found.reading
    if reading.problem is not None:
        raise HTTPException(503, reading.problem)
    rows = reading.first(MOST_EXPORTED)
    return rows, None if found.following is None else Links(request)(path, **found.following)


def _plain(row: Row) -> dict[str, object]:
    return {name: _value(row[name]) for name in COLUMNS}


def _value(value: object) -> object:
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
