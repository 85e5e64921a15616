"""Scopes that retire and return again and again, also while nothing can be planned or started."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.support.jobs import FUNCTION, s

if TYPE_CHECKING:
    from tests.simulation.support.clients import Client

FLAPS, PROVIDED = "flaps", "flaps_provided"
QUEUE = "narrow"
"""It is limited, and is paused for a while: what changes then is planned later, all at once."""
FLAPPED = ("a", "b")


def make_flapping(random: Random, jobs: list[dict[str, Any]]) -> None:
    """One whose scopes an operator edits, and one whose scope provider flaps."""
    for name in (FLAPS, PROVIDED):
        columns = {
            "name": name,
            "handler": "python",
            "target": {"python": FUNCTION},
            "schedule": random.choice(("@every 2s", "@every 3s")),
            "overlap": random.choice(("wait", "wait", "allow")),
            "catch_up": random.choice(("all", "all", "latest")),
            "grace": s(random.choice((0, 2, 60))),
            "catch_up_window": s(3600),
            "stale_timeout": s(6),
            "allow_stale_reentry": True,
            "max_attempts": 1,
            "retry_backoff": [s(0.5)],
            "queue": QUEUE,
            "scope_kind": "shard",
        }
        if columns["catch_up"] == "all":
            columns["catch_up_limit"] = 20
        if random.random() < 0.5:
            columns["max_running"] = 1
        if name == FLAPS:
            columns["scopes"] = list(FLAPPED)
        jobs.append(columns)


async def flap(client: "Client", random: Random, until: float) -> None:
    """Edit the scopes of the one job, in a pause of its queue or of the job, or in none."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        held = random.choice(("queue", "queue", "job", None))
        if held is not None:
            await client.hold(held, QUEUE if held == "queue" else FLAPS)
        for _ in range(random.randrange(2, 7)):
            await client.set_scopes(FLAPS, [x for x in FLAPPED if random.random() < 0.5])
            await asyncio.sleep(random.choice((0.0, 0.3, 1.2, 2.5)))
        await client.set_scopes(FLAPS, list(FLAPPED))
        if held is not None:
            await client.let_go(held, QUEUE if held == "queue" else FLAPS)
        await asyncio.sleep(random.uniform(0.5, 3))
