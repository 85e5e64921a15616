"""A replica as production builds and drives it, with its steps counted."""

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, cast

from cronledger.engine.finisher import Ended
from cronledger.replica import Replica
from cronledger.settings import Settings
from tests.simulation.jobs import FUNCTION, QUEUES
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


class SimReplica(Replica):
    """A replica as production builds and drives it; its steps are counted."""

    def __init__(self, cluster: "Cluster", process: Process, settings: Settings) -> None:
        super().__init__(
            url=cluster.database.url,
            settings=settings,
            functions={FUNCTION: cluster.handlers.python},
            applied=True,
        )
        self._plugins.providers.update(cluster.providers.of_replica())
        self._cluster = cluster
        self._process = process

    def _drive(self) -> None:
        loops = self._parts.loops
        drive = loops.drive

        def counted(name: str, step: Any, wake: Any = None, *, reads_clock: bool = False) -> None:
            async def stepped() -> float | None:
                self._cluster.steps[name] += 1
                answer: float | None = await step()
                return answer

            drive(name, stepped, wake, reads_clock=reads_clock)

        loops.drive = counted  # type: ignore[method-assign]
        super()._drive()

    def _written(self, ended: Any) -> None:
        for each in cast("list[Ended]", ended):
            self._cluster.trace("written", self._process.name, each.outcome.status.value)
        super()._written(ended)


def settings_of(runner: str, random: Random) -> Settings:
    return Settings(
        runner_id=runner,
        queues=QUEUES,
        slots=random.choice((2, 4, 10)),
        poll_interval=timedelta(seconds=random.choice((2, 2, 5))),
        retention=timedelta(days=3000),
        partition_interval=timedelta(days=60),
    )
