"""The addresses that are requested, and how long each takes."""

import re
import sys
import time
from collections.abc import Callable, Mapping
from html import unescape
from math import ceil
from typing import NamedTuple

import httpx2

from tests.bench.ledger import Ledger
from tests.bench.web.dataset import Size

ROUND_SECONDS = 1.2
"""A panel is read again once it is a second old, so each page is requested less often than that."""
LATER = 3
"""The keyset page that is measured beside the first one."""
PATIENCE = 60.0

_IDS = """
SELECT (SELECT id FROM cronledger.execution_status
        WHERE (job_name, scope_kind, scope_id) = ('tick', 'global', 'global') AND status = 'SUCCESS'
        ORDER BY plan_time DESC LIMIT 1) AS tick,
       (SELECT id FROM cronledger.recent_failures ORDER BY finished_at DESC LIMIT 1) AS failed
"""


def addresses(ledger: Ledger, size: Size, client: httpx2.Client) -> Mapping[str, str]:
    ids = ledger.one(_IDS)
    single, scoped = f"job-{size.jobs - 2:05}", f"job-{size.scoped // 2:05}"
    failing = f"job-{size.jobs - 1:05}"
    first = {
        "Now": "/", "Jobs": "/jobs", "Jobs, name contains": "/jobs?search=99",
        "Jobs, by queue": "/jobs?queue=mail", "Jobs, paused": "/jobs?state=paused",
        "Jobs, failing": "/jobs?result=failing", "Jobs, by state": "/jobs?sort=state",
        "Jobs, by next firing": "/jobs?sort=next",
        "Jobs, by 24 hours": "/jobs?sort=24h&order=desc", "Jobs, by p95": "/jobs?sort=p95",
        "Jobs, by last firing": "/jobs?sort=last&order=desc", "Job": f"/job/{single}",
        "Job, many scopes": f"/job/{scoped}", "Job, each second": "/job/tick",
        "Job, failing": f"/job/{failing}", "Ledger": "/ledger",
        "Ledger, 7 days": "/ledger?since=7d", "Ledger, failed": "/ledger?outcome=FAILED",
        "Ledger, skipped": "/ledger?outcome=SKIPPED",
        "Ledger, no match": "/ledger?since=7d&runner=nobody",
        "Ledger, one job": f"/ledger?job={single}&since=7d",
        "Ledger, many scopes": f"/ledger?job={scoped}&since=7d",
        "Ledger, each second": "/ledger?job=tick&outcome=FAILED&since=7d",
        "Execution": f"/execution/{ids['tick']}",
        "Execution, failed": f"/execution/{ids['failed']}", "Why": f"/why/{single}/03:00",
        "Runners and queues": "/runners", "Forecast": "/forecast", "Timeline": "/timeline",
        "Timeline, one job": f"/timeline?job={single}", "Pauses": "/pauses",
        "Calendars": "/calendars", "Verify": "/verify", "Audit": "/audit",
        "Search": f"/search?q={failing[-4:]}", "Search, scope": "/search?q=t0001",
    }  # fmt: skip
    later = {
        f"{name}, page {LATER}": found
        for name in ("Jobs", "Ledger", "Ledger, failed", "Ledger, one job", "Ledger, each second")
        if (found := _later(client, first[name]))
    }
    return first | later


def _later(client: httpx2.Client, address: str) -> str | None:
    for _ in range(LATER - 1):
        shown = client.get(address).raise_for_status().text
        following = re.search(r'rel="next" href="([^"]*)"', shown)
        if following is None:
            return None
        address = unescape(following[1])
    return address


class Taken(NamedTuple):
    """Milliseconds of one request: until its end, and of CPU time of the page and the server."""

    wall: float
    cpu: float


def measure(
    client: httpx2.Client, requested: Mapping[str, str], repeats: int, cpu: Callable[[], float]
) -> dict[str, list[Taken]]:
    """Return what each page took, `repeats` times after one that warms it up.

    `cpu`: returns the seconds of CPU time so far. Raises RuntimeError if a page has an error.
    Prints which panels could not be read in time.
    """
    found: dict[str, list[Taken]] = {name: [] for name in requested}
    for number in range(repeats + 1):
        began = time.monotonic()
        for name, address in requested.items():
            before = cpu()
            taken = _request(client, name, address)
            if number:
                found[name].append(Taken(taken, 1000 * (cpu() - before)))
        time.sleep(max(0.0, began + ROUND_SECONDS - time.monotonic()))
    return found


def _request(client: httpx2.Client, name: str, address: str) -> float:
    began = time.monotonic()
    response = client.get(address)
    taken = 1000 * (time.monotonic() - began)
    if response.status_code != 200:
        raise RuntimeError(f"{name} ({address}): status {response.status_code}: {response.text}")
    if problem := re.search(r'class="stale">([^<]*)', response.text):
        print(f"{name} ({address}): {problem[1]}", file=sys.stderr)  # it took the longest time, too
    return taken


def quantile(values: list[float], share: float) -> float:
    """Return the least value that at least this share of the values does not exceed."""
    return sorted(values)[ceil(len(values) * share) - 1]
