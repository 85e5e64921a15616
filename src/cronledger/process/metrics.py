"""The metrics of a process: those of its replica, also before the replica has started."""

from collections.abc import Callable
from dataclasses import replace

from cronledger.extras import require_library
from cronledger.metrics.measurements import Measurements, Observation
from cronledger.replica import Replica
from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.settings import PREFIX, Settings

SETTING = PREFIX + "METRICS"


def require_usable(settings: Settings) -> None:
    """Raise ConfigurationError if `metrics` is set, but the metrics cannot be served."""
    if not settings.metrics:
        return
    if settings.health_port is None:
        message, remedy = "needs a port for /metrics", f"set {PREFIX}HEALTH_PORT (0: any)"
        raise ConfigurationError(
            [Problem(field=SETTING, value="true", message=message, remedy=remedy)]
        )
    require_library("prometheus_client", "metrics", SETTING)


class ProcessMetrics:
    """Renders /metrics. `reachable` returns False while the start waits for the database."""

    def __init__(self, settings: Settings, reachable: Callable[[], bool]) -> None:
        from cronledger.metrics.replica_metrics import Exposition  # noqa: PLC0415 - of an extra

        self._reachable = reachable
        self._nothing = Measurements(settings.queues)
        self._slots = settings.slots
        self._read: Callable[[], Observation] | None = None
        self.render = Exposition(self._observe, settings.ledger_name).render

    def show(self, replica: Replica) -> None:
        """Show the metrics of this replica, which has not started, from now on."""
        self._read = replica.collector().read

    def _observe(self) -> Observation:
        if self._read is None:
            return Observation(self._nothing, "starting", self._reachable(), self._slots)
        seen = self._read()
        if seen.state != "starting":
            return seen
        return replace(seen, database_reachable=self._reachable())
