"""The counts of a runner for its metrics. Counting begins when the metrics are requested."""

from collections.abc import Sequence

from cronledger.engine.claiming.request import ClaimResult
from cronledger.engine.running.ended import Ended
from cronledger.metrics.measurements import Measurements, Outcome
from cronledger.rules.model import Status

OUTCOMES: dict[Status, Outcome] = {
    Status.SUCCESS: "success",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}


class Measuring:
    """Counts the reports of the components once `begin` was called.

    Before that, `measurements` is None and a report costs nothing.
    """

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = queues
        self.measurements: Measurements | None = None

    def begin(self) -> Measurements:
        """Begin to count, unless this has happened before. Return the counts."""
        if self.measurements is None:
            self.measurements = Measurements(self._queues)
        return self.measurements

    def written(self, ended: Sequence[Ended]) -> None:
        """Count attempts whose outcome is committed."""
        if self.measurements is None:
            return
        for x in ended:
            outcome = "released" if x.release else OUTCOMES[x.outcome.status]
            self.measurements.ended(
                x.lease.queue, x.lease.job.handler, outcome, x.duration_ms / 1000
            )

    def lost(self, ended: Sequence[Ended]) -> None:
        """Count attempts whose outcome this runner cannot write."""
        if self.measurements is None:
            return
        for x in ended:
            self.measurements.ended(
                x.lease.queue, x.lease.job.handler, "lost", x.duration_ms / 1000
            )

    def claimed(self, result: ClaimResult, seconds: float) -> None:
        """Count a committed claim, and the lateness of the executions that it started."""
        if self.measurements is None:
            return
        self.measurements.claims.observe(seconds)
        for queue, lateness in result.lateness:
            self.measurements.lateness[queue].observe(lateness.total_seconds())
