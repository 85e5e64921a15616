"""Search: jobs, scopes, executions, pages and actions whose name has a text."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.web import queries
from cronledger.web.links import Links
from cronledger.web.reading import Reading
from cronledger.web.site import Site, identity_of, site_of

MOST = 10
"""Results of each kind."""
MOST_OF_JOB = 3
"""Scopes of one job."""
MOST_CHARACTERS = 200
FRESH_SECONDS = 5.0
JOB_ACTIONS = {
    "Run": "/job-run", "Pause": "/job-pause", "Skip": "/job-skip", "Backfill": "/job-backfill",
}  # fmt: skip
"""The forms of a job. A search that begins with such a word finds the form of each job."""
ACTIONS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Retry failed executions", "/ledger", {"outcome": "FAILED"}),
    ("Cancel running executions", "/ledger", {"outcome": "RUNNING", "since": "7d"}),
    ("Plan a pause of jobs", "/pauses", {}),
    ("Pause or limit a queue", "/runners", {}),
    ("Verify the ledger", "/verify", {}),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What was found: its kind, its name, and its address."""

    kind: str
    name: str
    address: str
    note: str = ""


async def show(request: Request) -> Response:
    """Return the page of results, of which an open page shows the part `found`."""
    site = site_of(request)
    wanted = (queries.text(request, "q") or "").strip()[:MOST_CHARACTERS]
    execution, jobs, scopes = Reading([]), Reading([]), Reading([])
    verb, of_job = _verb(wanted)
    if wanted:
        execution, jobs, scopes = await asyncio.gather(
            _execution(site, wanted), _jobs(site, of_job),
            site.reader.read(
                "list_found_scopes", text=wanted, max_of_job=MOST_OF_JOB, max_rows=MOST,
                fresh=FRESH_SECONDS,
            ),
        )  # fmt: skip
    to = Links(request)
    results = [
        *(
            Result("execution", str(row["id"]), to("/execution", id=row["id"]), row["job_name"])
            for row in execution.known
        ),
        *_of_jobs(to, jobs, verb, is_operator=identity_of(request).is_operator),
        *(
            Result(
                "scope", f"{row['scope_kind']}/{row['scope_id']}",
                to("/job", name=row["job_name"], scope_kind=row["scope_kind"],
                   scope=row["scope_id"]),
                row["job_name"],
            )
            for row in scopes.known
        ),
        *_fixed(request, to, wanted),
    ]  # fmt: skip
    problem = execution.problem or jobs.problem or scopes.problem
    return await site.page(
        request, "search.html", wanted=wanted, results=results, problem=problem,
        has_more=jobs.has_more(MOST), of_job=of_job,
    )  # fmt: skip


async def _execution(site: Site, wanted: str) -> Reading:
    if not (wanted.isascii() and wanted.isdigit() and 0 < int(wanted) < 2**63):
        return Reading([])
    return await site.reader.read("show_execution_head", id=int(wanted), fresh=FRESH_SECONDS)


async def _jobs(site: Site, wanted: str) -> Reading:
    others = dict.fromkeys(
        ("names", "among", "result", "queue", "source", "owner", "label", "state")
    )
    return await site.reader.read(
        "list_job_states", search=wanted, max_rows=MOST + 1, fresh=FRESH_SECONDS, **others
    )


def _verb(wanted: str) -> tuple[str | None, str]:
    """Return the action with which the text begins, and the text that names jobs."""
    first, _, rest = wanted.partition(" ")
    verb = first.capitalize()
    return (verb, rest.strip()) if verb in JOB_ACTIONS and rest.strip() else (None, wanted)


def _of_jobs(to: Links, jobs: Reading, verb: str | None, *, is_operator: bool) -> Iterator[Result]:
    """Return the jobs, and for an operator the named action on each, or all on the only one."""
    names = [row["name"] for row in jobs.first(MOST)]
    if verb is None or not is_operator:
        for row in jobs.first(MOST):
            state = row["state"].replace("_", " ")
            yield Result("job", row["name"], to("/job", name=row["name"]), state)
    if not is_operator or (verb is None and len(names) > 1):
        return
    for name in names:
        for word, path in JOB_ACTIONS.items():
            if verb in (None, word):
                yield Result("action", f"{word} {name}", to(path, name=name))


def _fixed(request: Request, to: Links, wanted: str) -> Iterator[Result]:
    """Return the pages and the actions whose name has each word of the text."""
    words = wanted.casefold().split()

    def matches(name: str) -> bool:
        return all(word in name.casefold() for word in words)

    for group in site_of(request).groups:
        for entry in group.entries:
            if matches(f"{group.title} {entry.title}"):
                yield Result("page", entry.title, to(entry.path), group.title)
    if identity_of(request).is_operator:
        for name, path, query in ACTIONS:
            if matches(name):
                yield Result("action", name, to(path, **query))


ROUTES = [Route("/search", show, methods=["GET"])]
