"""Now: what needs a person, what is held on purpose, what runs, and what comes next."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.rules.calendar_spec import ENDS_SOON
from cronledger.web import attention, owners, queries
from cronledger.web.attention import Kind
from cronledger.web.reading import Reader, Reading
from cronledger.web.site import Entry, site_of

MOST = 100
"""Jobs that one statement returns, and rows of the list."""
FIRST = 10
"""Rows of a quiet panel. The others are behind a summary."""
VIOLATIONS_SECONDS = 60.0
"""A violation of the present has lasted for minutes when it is found."""
CHECK_SECONDS = 10.0
CALENDARS_SECONDS = 10.0
SCOPES_SECONDS = 60.0
MOST_SCOPES = 10_000
"""Scopes of which the last execution is looked at, which costs a read of an index for each."""
FAILING_SECONDS = 5.0
MOST_BREACHES = 1_000
"""The newest breaches of all jobs, which are searched for open ones of the last day."""
MOST_WAITING = 10_000
MOST_NEXT = 10_000
"""Firings of one queue that are searched for those of an owner or a label."""
SELECTABLE = (Kind.FAILING, Kind.OVERDUE, Kind.ALERT)
"""The counters that select rows of the list."""

ENTRY = Entry("Now", "/")


async def show(request: Request) -> Response:
    """Return the page. `only` selects one kind of problem. Raises HTTPException."""
    site = site_of(request)
    filters = owners.chosen(request)
    only = next(iter(queries.choices(request, "only", SELECTABLE)), None)
    is_filtered = any(filters.values())
    readings, sources = await asyncio.gather(
        _readings(site.reader, filters, is_filtered), owners.sources(request)
    )
    overdue, failing = readings["overdue"], readings["failing"]
    wrong = attention.folded(attention.problems(
        overdue=[row for row in overdue.known if not row["is_held"]],
        **{name: readings[name].known for name in ("failing", "breaches", "alerts", "violations")},
    ))  # fmt: skip
    held = attention.folded(attention.problems(
        overdue=[row for row in overdue.known if row["is_held"]],
        paused=readings["paused"].known, waiting=readings["waiting"].known,
    ))  # fmt: skip
    scopes = readings["scopes"]
    are_all_known = bool(scopes.known) and scopes.known[0]["count"] <= MOST_SCOPES
    runners, running = readings["runners"], readings["running"]
    rows = running.rows and await site.expectations.of(running.rows, running.now)
    live = [row for row in runners.known if row["state"] != "stopped"]
    states = {row["state"] for row in live}
    shown = [*wrong[:MOST], *held[:MOST]]
    runbooks, of_scopes = await asyncio.gather(
        _of_jobs(site.reader, "list_runbooks", CALENDARS_SECONDS, shown),
        _of_jobs(site.reader, "list_scope_counts", SCOPES_SECONDS, shown),
    )
    trouble = (overdue, failing, *(readings[name] for name in ("violations", "breaches", "alerts")))
    return await site.page(
        request, "now.html", most=MOST, first=FIRST, wrong=attention.of_kind(wrong, only),
        held=held, only=only, counts=_counts(wrong, readings), problems=_problems(readings),
        is_cut=any(panel.has_more(MOST) for panel in trouble),
        running=replace(running, rows=rows), upcoming=readings["upcoming"], check=readings["check"],
        violating=readings["violating"], runners=replace(runners, rows=runners.rows and live),
        ending=readings["ending"], are_all_known=are_all_known, most_scopes=MOST_SCOPES,
        filters=filters, is_filtered=is_filtered, is_empty=sources.rows == [],
        owners=owners.distinct(sources, "owner"), most_next=MOST_NEXT, runbooks=runbooks,
        of_scopes=of_scopes,
        is_calm="alive" in states
        and "failing" not in states
        and sources.rows != []
        and are_all_known
        and not wrong
        and not readings["violating"].known
        and not any(panel.problem for panel in (*trouble, readings["violating"])),
    )  # fmt: skip


async def _readings(
    reader: Reader, filters: dict[str, Any], is_filtered: bool
) -> dict[str, Reading]:
    """Return what the page reads, by name. Each list has one row more than it shows, if any."""
    most: dict[str, Any] = {"max_rows": MOST + 1, **filters}
    read = reader.read
    wanted = {
        "overdue": read("list_overdue", **most),
        "failing": read(
            "list_failing", fresh=FAILING_SECONDS, most_scopes=MOST_SCOPES, **most
        ),
        "scopes": read("show_scope_count", fresh=FAILING_SECONDS, most_scopes=MOST_SCOPES + 1),
        "breaches": read("list_open_breaches", max_read=MOST_BREACHES, **most),
        "alerts": read("list_alerting", **most),
        "violations": read("list_violations", fresh=VIOLATIONS_SECONDS, **most),
        "check": read("show_verification", fresh=CHECK_SECONDS),
        "violating": read("list_violating_runs", fresh=CHECK_SECONDS, max_rows=MOST),
        "paused": read("list_paused_jobs", **most),
        "waiting": read("list_waiting", max_read=MOST_WAITING, **most),
        "running": read("list_running", **most),
        "upcoming": read(
            "list_next_hour", max_read=MOST_NEXT if is_filtered else MOST + 1, **most
        ),
        "runners": read("list_runners", with_former=False, max_rows=MOST + 1),
        "ending": read("examine_calendars", days=ENDS_SOON.days, fresh=CALENDARS_SECONDS),
    }  # fmt: skip
    return dict(zip(wanted, await asyncio.gather(*wanted.values()), strict=True))


async def _of_jobs(
    reader: Reader, statement: str, fresh: float, troubles: Sequence[attention.Trouble]
) -> dict[str, Any]:
    """Return the second column of the statement by the first one, which is the job."""
    names = sorted({name for one in troubles if (name := one.row["job_name"]) is not None})
    if not names:
        return {}
    found = await reader.read(statement, names=names, max_rows=len(names), fresh=fresh)
    return dict(tuple(row.values()) for row in found.known)


def _counts(
    wrong: list[attention.Trouble], readings: dict[str, Reading]
) -> list[tuple[str, str, str]]:
    """Return the counters: the word, the number, and what its link selects or leads to."""
    counts = [(kind.value, len(attention.of_kind(wrong, kind)), kind.value) for kind in SELECTABLE]
    counts += [
        ("running", len(readings["running"].known), "#running"),
        ("paused", len(readings["paused"].known), "#held"),
    ]
    words = {"alert": "with alerts"}
    return [
        (words.get(word, word), f"{MOST}+" if number > MOST else f"{number:,}", target)
        for word, number, target in counts
    ]


def _problems(readings: dict[str, Reading]) -> list[str]:
    """Return why parts of the list are not up to date, each reason once."""
    parts = ("overdue", "failing", "breaches", "alerts", "violations", "violating", "paused",
             "waiting")  # fmt: skip
    return list(dict.fromkeys(
        problem for name in parts if (problem := readings[name].problem) is not None
    ))  # fmt: skip


ROUTES = [Route("/", show, methods=["GET"])]
