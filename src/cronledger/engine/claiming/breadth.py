"""The number of rows that a claim reads."""

LARGEST_CLAIM = 1_000
"""The maximum number of rows of each kind that a claim reads. A claim that begins ahead of the
instant reads and plans 1,000 scopes of one job in 40 ms, and those of 1,000 jobs in 100 ms."""
MAX_EXTRA_SCHEDULES = 100
"""The maximum number of schedules of each kind that a claim plans without a slot for them. Planning
100 takes about 10 ms. Executions that become due meanwhile wait for the next claim."""
LEAST_BREADTH = 50
"""The minimum number of due schedules that a claim may lock. In a backlog the first few take all
slots. The claim reads the others for nothing, and other replicas cannot lock them meanwhile."""


class Breadth:
    """The number of due schedules that the next claim locks.

    There may be more due schedules than free slots. Many of them need no slot, because their
    plan_times were missed or overlap.
    """

    def __init__(self) -> None:
        self._limit = LARGEST_CLAIM
        self._per_slot = 1

    def rows(self, slots: int) -> int:
        """Return the number of due schedules to lock while `slots` are free."""
        beyond = min(MAX_EXTRA_SCHEDULES, slots * self._per_slot)
        return min(self._limit, max(slots, beyond))

    def adapt(self, due: int, slotless: int, *, full: bool) -> None:
        """Adapt to a claim that locked `due` schedules and had no slot for `slotless` of them.

        `full`: the claim locked as many as it was allowed to.
        """
        if slotless:
            self._limit = max(LEAST_BREADTH, 2 * (due - slotless))
            self._per_slot = 1
        elif full:
            self._limit = min(LARGEST_CLAIM, 2 * self._limit)
            self._per_slot = min(MAX_EXTRA_SCHEDULES, 2 * self._per_slot)
