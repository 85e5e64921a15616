"""Boots of hosts: a process that starts may be the first one after a boot, and may die soon."""

import asyncio
from collections import defaultdict
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

from cronledger.engine.maintenance.boot import Boot
from tests.simulation.support.jobs import AT_BOOT
from tests.simulation.support.loop import Process

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster

MOST_DEATHS = 3


class SimBoot(Boot):
    """A boot whose uptime follows the clock of the loop."""

    @property
    def uptime(self) -> timedelta:
        return timedelta(seconds=asyncio.get_running_loop().time() - self.since)


def boot_of(configured: str | None) -> SimBoot | None:
    """Return the boot, in place of the engine's function. The id ends with the instant."""
    if configured is None:
        return None
    return SimBoot(configured, 0, float(configured.rpartition("/")[2]))


class Boots:
    """All boots of one simulation, by host."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._random = Random(f"boots {cluster.seed}")
        self._made: defaultdict[str, list[str]] = defaultdict(list)
        self._deaths = 0

    def of(self, process: Process) -> str:
        """Return the boot of the host of a process that starts.

        Some processes die around the second in which the plan_time of a new boot is due.
        """
        cluster, random, boots = self._cluster, self._random, self._made[process.runner[:2]]
        if not boots or random.random() < 0.6:
            since = cluster.loop.time() - random.choice((0.0, 0.3, 4.0))
            boots.append(f"{process.runner[:2]}/{len(boots)}/{since:.6f}")
        if cluster.faults.on and random.random() < 0.5 and self._deaths < MOST_DEATHS:
            self._deaths += 1
            cluster.loop.after(random.uniform(0.0, 1.5), cluster.kill, process)
        return boots[-1]

    def judge(self) -> None:
        """Check that each known boot has its own plan_time, and nothing else ran at boot."""
        found: dict[tuple[str, object], str] = {}
        for host, boot, plan_time in self._cluster.database.eye.execute(
            "SELECT host, boot_id, plan_time FROM host_boots ORDER BY host, boot_id"
        ):
            if boot not in self._made[host]:
                self._cluster.wrong(f"{host} had no boot {boot}")
            elif plan_time is None and boot == self._made[host][-1]:
                self._cluster.wrong(f"the last boot of {host} has no plan_time")
            elif plan_time is not None and found.setdefault((host, plan_time), boot) != boot:
                self._cluster.wrong(f"two boots of {host} have the plan_time {plan_time}")
        for span in self._cluster.record.spans:
            host, plan_time = span.key.scope_id, span.key.plan_time
            if span.key.job_name == AT_BOOT and (host, plan_time) not in found:
                self._cluster.wrong(f"{span} ran, and {host} has no boot of this plan_time")
            elif span.key.job_name == AT_BOOT and span.process.runner[:2] != host:
                self._cluster.wrong(f"{span} ran, which is not {host}")
