"""A replica as production builds and drives it, with its steps counted."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, cast

from cronledger.engine.apps import AppRegistry
from cronledger.engine.running.ended import Ended
from cronledger.engine.runtime.runtime import Runtime
from cronledger.ledger.access import Access as RealAccess
from cronledger.replica import Replica
from cronledger.settings import Settings
from tests.simulation.support.access import Access
from tests.simulation.support.jobs import FUNCTION, QUEUES
from tests.simulation.support.loop import Process

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster


class SimRuntime(Runtime):
    """The runtime that production has; its steps are counted and its writes traced."""

    def __init__(
        self, cluster: "Cluster", process: Process, settings: Settings, apps: AppRegistry
    ) -> None:
        super().__init__(settings, cluster.database.url, apps, applied=True, manual=False)
        self.access = cast(RealAccess, Access(cluster, process, self.expected))
        self._cluster = cluster
        self._process = process

    def _drive(self) -> None:
        loops = self.components.loops
        drive = loops.drive

        def counted(name: str, step: Any, wake: Any = None, **options: bool) -> None:
            async def stepped() -> float | None:
                self._cluster.steps[name] += 1
                answer: float | None = await step()
                return answer

            drive(name, stepped, wake, **options)

        loops.drive = counted  # type: ignore[method-assign]
        written = self.components.finisher.written
        written.then(self._written, *written.reactions)
        super()._drive()

    def _written(self, ended: Sequence[Ended]) -> None:
        for each in ended:
            self._cluster.trace("written", self._process.name, each.outcome.status.value)


class SimReplica(Replica):
    """A replica as production builds and drives it, on the network of the simulation."""

    def __init__(self, cluster: "Cluster", process: Process, settings: Settings) -> None:
        super().__init__(
            url=cluster.database.url,
            settings=settings,
            functions={FUNCTION: cluster.handlers.python},
            applied=True,
        )
        apps = self._runtime.apps
        apps.providers.update(cluster.providers.of_replica())
        self._runtime = SimRuntime(cluster, process, settings, apps)


def settings_of(runner: str, random: Random, boot: str | None) -> Settings:
    slots, poll = random.choice((2, 4, 10)), random.choice((2, 2, None))
    chosen: dict[str, Any] = {} if poll is None else {"poll_interval": timedelta(seconds=poll)}
    return Settings(
        **chosen,
        runner_id=runner,
        host=runner[:2],
        boot_id=boot,
        labels=("fleet=all", f"part={'odd' if int(runner[1]) % 2 else 'even'}"),
        queues=QUEUES,
        slots=slots,
        partition_interval=timedelta(days=60),
    )
