"""Which runner plans: one with older tzdata or croniter leaves what they decide to newer ones.

Two runners that read one schedule differently would plan two different sets of plan_times, and the
cursor would go by whoever came first. The newer one plans; both execute.

A schedule is left to the newer one only while that one is seen to plan: by its last check-in it has
free slots and claims, and it takes what was left to it within LONGEST_WAIT. Otherwise the older one
plans: a schedule that fires by older zone data is better than one that does not fire. The cursor
keeps the two from planning one plan_time twice.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any

from cronledger.logger import get_logger
from cronledger.rules.model import Handler, Job, ScheduleRow, ScopeKey

log = get_logger(__name__)

LONGEST_WAIT = 5.0
"""Seconds that a due schedule is left to a newer runner; at most half of the grace of its job."""
REMEMBERED = 600.0
"""Seconds after which it is forgotten that a schedule was left: a runner without a free slot does
not look again before it has one."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A live runner with newer `tzdata` or `croniter`, and what it can plan for. `able`: its
    check-in of the instant `seen` shows that it claims."""

    id: str
    queues: frozenset[str]
    handlers: frozenset[str]
    tzdata: bool
    croniter: bool
    able: bool
    seen: str = field(compare=False)

    def plans(self, job: Job, queue: str) -> bool:
        """Whether it has the job, and reads its schedule by something newer than we."""
        if queue not in self.queues or job.schedule is None:
            return False
        if job.handler is Handler.PYTHON and job.target["function"] not in self.handlers:
            return False
        cron = not job.schedule.lstrip().startswith("@every")
        return cron and (self.croniter or (self.tzdata and job.timezone != "UTC"))


Mark = tuple[ScopeKey, datetime]
"""A due schedule and its cursor: the same as long as nobody plans it."""


@dataclass(slots=True)
class _Left:
    """Due schedules of one job that are left to others `until` a monotonic instant. `rows`: since
    when each is; `before`: the same of the claim that left some before."""

    until: float
    before: Mapping[Mark, float]
    rows: dict[Mark, float] = field(default_factory=dict)


@dataclass(slots=True)
class NewerPeers:
    """The live runners that are newer than this one; `fingerprint` is what this one has."""

    fingerprint: Mapping[str, str]
    _newer: list[Peer] = field(default_factory=list, init=False)
    _left: dict[str, _Left] = field(default_factory=dict, init=False)
    _idle: dict[str, str] = field(default_factory=dict, init=False)  # who did not plan, when seen

    def observe(self, others: Sequence[Mapping[str, Any]] | None) -> bool:
        """Take in the runners whose fingerprint differs, as `check_in` returns them.

        Return whether the set of newer runners, or what they are able to do, has changed.
        """
        newer = [peer for peer in map(self._peer, others or ()) if peer.tzdata or peer.croniter]
        changed = newer != self._newer
        self._newer = newer
        self._idle = {x.id: x.seen for x in newer if self._idle.get(x.id) == x.seen}
        if changed:
            self.reconsider()
        return changed

    def reconsider(self) -> None:
        """What was left to others is looked at again by the next claim."""
        now = monotonic()
        for left in self._left.values():
            left.until = min(left.until, now)

    def leaves(self, job: Job, row: ScheduleRow) -> bool:
        """Whether another runner is to plan this due schedule. From a schedule that was left to
        others for too long it learns that they do not plan."""
        peers = [x for x in self._newer if x.able and x.id not in self._idle]
        peers = [x for x in peers if x.plans(job, row.queue)]
        wait = min(LONGEST_WAIT, job.grace.total_seconds() / 2)
        if not peers or wait <= 0:
            return False
        now, mark = monotonic(), (row.key, row.planned_through)
        left = self._left.get(job.name)
        if left is None or left.until <= now:  # the first of this claim
            left = _Left(now + wait, {} if left is None else left.rows)
        since = left.before.get(mark, now)
        if now - since >= wait:
            self._idle.update((peer.id, peer.seen) for peer in peers)
            log.warning(
                "planning_taken_over", job=job.name, scope=row.key.scope_id,
                waited_s=round(now - since, 1), of=[peer.id for peer in peers],
            )  # fmt: skip
            return False
        left.rows[mark] = since
        left.until = min(left.until, since + wait)
        self._left[job.name] = left
        return True

    def left(self) -> list[str]:
        """Jobs whose due schedules are left to others for the moment, by name."""
        now = monotonic()
        self._left = {name: x for name, x in self._left.items() if now < x.until + REMEMBERED}
        return [name for name, x in self._left.items() if now < x.until]

    def look_again(self) -> float | None:
        """Seconds until the first of them is looked at again; None: none is left to others."""
        now = monotonic()
        return min((x.until - now for x in self._left.values() if now < x.until), default=None)

    def described(self) -> dict[str, int | str]:
        """For a log line: how many runners are newer in what, and what this one has."""
        return {
            "newer_tzdata": sum(peer.tzdata for peer in self._newer),
            "newer_croniter": sum(peer.croniter for peer in self._newer),
            "able": sum(peer.able for peer in self._newer),
            "tzdata": self.fingerprint.get("tzdata", ""),
            "croniter": self.fingerprint.get("croniter", ""),
        }

    def _peer(self, other: Mapping[str, Any]) -> Peer:
        theirs = other["fingerprint"]
        newer = {
            name: version(theirs.get(name)) > version(self.fingerprint.get(name))
            for name in ("tzdata", "croniter")
        }
        return Peer(
            other["id"], frozenset(other["queues"]), frozenset(other["handlers"]), **newer,
            able=_is_able(other), seen=other["seen"],
        )  # fmt: skip


def _is_able(other: Mapping[str, Any]) -> bool:
    """Whether a runner's last check-in shows that it claims; one that says nothing does not."""
    age = other["claimed_s_ago"]
    return (
        other["free"] > 0
        and other["database"] == "ok"
        and not other["failures"]
        and age is not None
        # A runner that waits for work claims every poll interval, a bit less than ttl / 3.
        and age <= other["ttl_s"] / 2
    )


def version(text: str | None) -> tuple[tuple[int, str], ...]:
    """A version as something that sorts: `2025b` after `2025a`, `7.0.10` after `7.0.9`."""
    parts = re.findall(r"(\d+)|([a-z]+)", (text or "").lower())
    return tuple((int(number or -1), word) for number, word in parts)
