"""Planning while runners have different versions of tzdata or croniter.

Two runners that read one schedule differently would plan two different sets of plan_times, and the
cursor would follow whichever came first. So the older runner delegates such schedules to the newer
one, and both execute.

A schedule is delegated only while there is evidence that the newer runner plans. Its last check-in
has to show free slots and working claims, and it has to plan the schedule within LONGEST_WAIT.
Otherwise the older runner plans: a schedule that fires by older zone data is better than one that
does not fire. The cursor prevents both from planning the same plan_time.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any

from cronledger.logs.loggers import get_logger
from cronledger.rules.model import Handler, Job, ScopeKey
from cronledger.rules.plans import ScheduleRow

log = get_logger(__name__)

LONGEST_WAIT = 5.0
"""The maximum time in seconds for which a due schedule is delegated. Half of the job's grace
applies if it is shorter."""
REMEMBERED = 600.0
"""The seconds for which an ended delegation is remembered. A runner without a free slot does not
consider the schedule again before it has one."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A live runner with newer `tzdata` or `croniter`, and its abilities.

    `able`: its last check-in, at the instant `seen`, shows that it claims.
    """

    id: str
    queues: frozenset[str]
    handlers: frozenset[str]
    labels: frozenset[str]
    tzdata: bool
    croniter: bool
    able: bool
    seen: str = field(compare=False)

    def plans(self, job: Job, queue: str) -> bool:
        """Return whether the peer can run the job, and reads its schedule by newer data."""
        if queue not in self.queues or job.schedule is None:
            return False
        if not self.labels.issuperset(job.on or ()):
            return False
        if job.handler is Handler.PYTHON and job.target["python"] not in self.handlers:
            return False
        zoned = self.tzdata and job.timezone != "UTC"
        if job.schedule.lstrip().startswith("@every"):
            return zoned and job.calendar is not None
        return self.croniter or zoned


DueCursor = tuple[ScopeKey, datetime]
"""A due schedule and its cursor. The pair stays the same until a runner plans the schedule."""


@dataclass(slots=True)
class _Delegation:
    """The due schedules of one job that are delegated `until` a monotonic instant.

    `since`: the start of the delegation, by schedule. `before`: the same of the previous claim that
    delegated schedules of this job.
    """

    until: float
    before: Mapping[DueCursor, float]
    since: dict[DueCursor, float] = field(default_factory=dict)


@dataclass(slots=True)
class NewerPeers:
    """The live runners that are newer than this one, which has `fingerprint`."""

    fingerprint: Mapping[str, str]
    _newer: list[Peer] = field(default_factory=list, init=False)
    _delegations: dict[str, _Delegation] = field(default_factory=dict, init=False)
    # Peers that did not plan what was delegated to them, with the check-in that was known then.
    _idle: dict[str, str] = field(default_factory=dict, init=False)

    def observe(self, others: Sequence[Mapping[str, Any]] | None) -> bool:
        """Replace the known peers by `others`, the runners with another fingerprint.

        Return whether the newer runners, or their abilities, have changed.
        """
        newer = [peer for peer in map(self._peer, others or ()) if peer.tzdata or peer.croniter]
        changed = newer != self._newer
        self._newer = newer
        self._idle = {x.id: x.seen for x in newer if self._idle.get(x.id) == x.seen}
        if changed:
            self.reconsider()
        return changed

    def reconsider(self) -> None:
        """Let the next claim consider all delegated schedules again."""
        now = monotonic()
        for delegation in self._delegations.values():
            delegation.until = min(delegation.until, now)

    def delegates(self, job: Job, row: ScheduleRow) -> bool:
        """Return whether another runner has to plan this due schedule, and remember it.

        A schedule that has been delegated for too long shows that the peers do not plan.
        """
        peers = [x for x in self._newer if x.able and x.id not in self._idle]
        peers = [x for x in peers if x.plans(job, row.queue)]
        wait = min(LONGEST_WAIT, job.grace.total_seconds() / 2)
        if not peers or wait <= 0:
            return False
        now, cursor = monotonic(), (row.key, row.planned_through)
        delegation = self._delegations.get(job.name)
        if delegation is None or delegation.until <= now:  # the first schedule in this claim
            before = {} if delegation is None else delegation.since
            delegation = _Delegation(now + wait, before)
        since = delegation.before.get(cursor, now)
        if now - since >= wait:
            self._idle.update((peer.id, peer.seen) for peer in peers)
            log.warning(
                "planning_taken_over", job=job.name, scope=row.key.scope_id,
                waited_s=round(now - since, 1), of=[peer.id for peer in peers],
            )  # fmt: skip
            return False
        delegation.since[cursor] = since
        delegation.until = min(delegation.until, since + wait)
        self._delegations[job.name] = delegation
        return True

    def delegated_jobs(self) -> list[str]:
        """Return the names of the jobs with delegated schedules."""
        now = monotonic()
        self._delegations = {
            name: x for name, x in self._delegations.items() if now < x.until + REMEMBERED
        }
        return [name for name, x in self._delegations.items() if now < x.until]

    def reconsider_after(self) -> float | None:
        """Return the seconds until a delegation ends, or None if there is none."""
        now = monotonic()
        ends = (x.until for x in self._delegations.values() if now < x.until)
        return min((end - now for end in ends), default=None)

    def described(self) -> dict[str, int | str]:
        """Return the numbers of newer runners and this runner's versions, for a log line."""
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
            other["id"], frozenset(other["queues"]), frozenset(other["handlers"]),
            frozenset(other["labels"]), **newer,
            able=_is_able(other), seen=other["seen"],
        )  # fmt: skip


def _is_able(other: Mapping[str, Any]) -> bool:
    """Return whether a runner's last check-in shows that it claims what comes due."""
    loop, claimed_s_ago = other["dispatcher"], other["claimed_s_ago"]
    if claimed_s_ago is None:
        return False
    # A dispatcher that waits claims as soon as something is due. A runner that is stepped by hand
    # has no loop.
    silent = claimed_s_ago if loop is None else loop["step_age_s"] if loop["busy"] else 0
    return (
        other["free"] > 0
        and other["database"] == "ok"
        and (loop is None or not loop["failures"])
        and silent <= other["ttl_s"] / 2
    )


def version(text: str | None) -> tuple[tuple[int, str], ...]:
    """Return a version as a sortable value: `2025b` after `2025a`, `7.0.10` after `7.0.9`."""
    parts = re.findall(r"(\d+)|([a-z]+)", (text or "").lower())
    return tuple((int(number or -1), word) for number, word in parts)
