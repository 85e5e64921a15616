"""Who may plan: a runner with older tzdata or croniter leaves what they decide to newer ones.

Two runners that read one schedule differently would plan two different sets of plan_times, and the
cursor would go by whoever came first. The newer one plans; both execute.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cronledger.rules.model import Handler, Job


@dataclass(frozen=True, slots=True)
class Peer:
    """A live runner with newer `tzdata` or `croniter`, and what it can plan for."""

    queues: frozenset[str]
    handlers: frozenset[str]
    tzdata: bool
    croniter: bool

    def plans(self, job: Job, queue: str) -> bool:
        """Whether it has the job, and reads its schedule by something newer than we."""
        if queue not in self.queues or job.schedule is None:
            return False
        if job.handler is Handler.PYTHON and job.target["function"] not in self.handlers:
            return False
        cron = not job.schedule.lstrip().startswith("@every")
        return cron and (self.croniter or (self.tzdata and job.timezone != "UTC"))


@dataclass(slots=True)
class Planners:
    """The live runners that are newer than this one; `fingerprint` is what this one has.

    `left`: jobs whose due schedules were left to them, by name; looked at again after each pulse.
    """

    fingerprint: Mapping[str, str]
    left: set[str] = field(default_factory=set, init=False)
    _newer: list[Peer] = field(default_factory=list, init=False)

    def observe(self, others: Sequence[Mapping[str, Any]] | None) -> bool:
        """Take in runners whose fingerprint differs, as `pulse` answers them; true when the set of
        newer ones changed."""
        newer = [peer for peer in map(self._peer, others or ()) if peer.tzdata or peer.croniter]
        self.left.clear()
        changed = newer != self._newer
        self._newer = newer
        return changed

    def leaves(self, job: Job, queue: str) -> bool:
        """Whether another runner is to plan this job."""
        return any(peer.plans(job, queue) for peer in self._newer)

    def described(self) -> dict[str, int | str]:
        """For a log line: how many runners are newer in what, and what this one has."""
        return {
            "newer_tzdata": sum(peer.tzdata for peer in self._newer),
            "newer_croniter": sum(peer.croniter for peer in self._newer),
            "tzdata": self.fingerprint.get("tzdata", ""),
            "croniter": self.fingerprint.get("croniter", ""),
        }

    def _peer(self, other: Mapping[str, Any]) -> Peer:
        theirs = other["fingerprint"]
        newer = {
            name: version(theirs.get(name)) > version(self.fingerprint.get(name))
            for name in ("tzdata", "croniter")
        }
        return Peer(frozenset(other["queues"]), frozenset(other["handlers"]), **newer)


def version(text: str | None) -> tuple[tuple[int, str], ...]:
    """A version as something that sorts: `2025b` after `2025a`, `7.0.10` after `7.0.9`."""
    parts = re.findall(r"(\d+)|([a-z]+)", (text or "").lower())
    return tuple((int(number or -1), word) for number, word in parts)
