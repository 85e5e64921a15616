"""The stream of events with the output of an execution, while a page shows it."""

import json
from asyncio import sleep
from collections.abc import AsyncGenerator
from time import monotonic
from typing import TYPE_CHECKING

from markupsafe import Markup

from cronledger.ledger.following import ANNOUNCE_SECONDS, POLL_SECONDS, Following
from cronledger.web.ansi import Ansi, shown
from cronledger.web.refresh import STREAM_SECONDS

if TYPE_CHECKING:
    from cronledger.web.site import Site

MOST_FOLLOWERS = 100
"""Streams of one process. Those of different executions poll on their own, so there are fewer than
streams of changes.
"""


class Followers:
    """Counts the streams of this process."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Return whether there are as many streams as this process serves."""
        return self._count >= MOST_FOLLOWERS

    async def stream(self, site: "Site", following: Following) -> AsyncGenerator[str, None]:
        """Yield the output after what `following` has seen, as HTML, until the execution has ended.

        Events: `output`, more of it; `whole`, all of it, in place of what was seen; `end`, nothing
        follows. Each has the id with which a later stream continues.
        """
        self._count += 1
        try:
            async for event in _events(site, following):
                yield event
        finally:
            self._count -= 1


async def _events(site: "Site", following: Following) -> AsyncGenerator[str, None]:
    ansi, until = Ansi(), monotonic() + STREAM_SECONDS
    yield "retry: 1000\n\n"
    while monotonic() < until and not site.refresh.is_stopped:
        # By the login that acts, because a standby sends no notification.
        await site.operators.read(
            "call_announce_follow", fresh=ANNOUNCE_SECONDS, id=following.execution_id
        )
        # Those who have seen the same read it together.
        read = await site.reader.read("follow_output", fresh=POLL_SECONDS / 2, **following.params)
        if read.rows == []:  # the execution does not exist
            yield _event(following, "end", Markup())
            return
        row = next(iter(read.known), None)
        if row is not None:
            before, text = following.attempt, following.news(row)
            if following.attempt != before:
                ansi = Ansi()
                yield _event(following, "whole", ansi.feed(text))
            elif text and row["status"] == "RUNNING":
                yield _event(following, "output", ansi.feed(text))
            if row["status"] != "RUNNING" and row["next_attempt_at"] is None:
                yield _event(following, "whole", shown(row["output"] or ""))
                yield _event(following, "end", Markup())
                return
        await sleep(POLL_SECONDS)


def _event(following: Following, name: str, html: Markup) -> str:
    seen = f"{following.attempt}.{following.number}"
    return f"id: {seen}\nevent: {name}\ndata: {json.dumps(html)}\n\n"
