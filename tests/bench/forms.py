"""The sizes of the three forms: short for every commit, plain, and full for the documents."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.bench.backlog import Backlog

SLOTS = (10, 100, 1000)
SCOPES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How much of everything is measured.

    `repeats`: of each contestant. `each`: missed plan_times of each of the 20 scopes, by slots.
    `enqueued`: messages. `schedules` and `rows` are those of the large ledgers; None: not measured.
    `at_once`: schedules that are due at one instant, beside peers. `each_second`: seconds for which
    jobs fire each second beside peers. `pinned_minutes`: how long a session is idle in a
    transaction. `loads`: the schedules of a ledger, of which `due_each_second` are due each second,
    with the numbers of replicas. None: not measured.
    `full_plans`: query plans at full size. `compares`: with the baseline and the peers.
    """

    name: str
    repeats: int = 3
    each: Mapping[int, int]
    enqueued: int
    lateness_seconds: int
    at_once: tuple[int, ...] = ()
    each_second: int | None = None
    pinned_minutes: int | None = None
    burst: int
    burst_ahead: int = 15
    burst_replicas: tuple[int, ...] = (1, 4)
    replicas: tuple[int, ...] = (1, 2, 4, 8, 16)
    shared: Backlog
    idle_seconds: int
    schedules: int | None = None
    loads: Mapping[int, tuple[int, ...]] | None = None
    due_each_second: int = 1_000
    schedules_seconds: int = 60
    rows: int | None = None
    full_plans: bool = True
    compares: bool = True

    def backlog(self, slots: int) -> Backlog:
        return Backlog(SCOPES, self.each[slots])

    def lasting(self, minutes: int) -> "Form":
        """Return the form in which jobs fire each second for this long."""
        return replace(
            self,
            each_second=self.each_second and 60 * minutes,
            pinned_minutes=self.pinned_minutes and 6 * minutes,
            schedules_seconds=60 * minutes,
        )


SHORT = Form(
    name="short", repeats=1, each={10: 20, 100: 50, 1000: 100}, enqueued=2_000, lateness_seconds=4,
    burst=1_000, burst_replicas=(1,), replicas=(1, 2), shared=Backlog(20, 50), idle_seconds=2,
    loads={1_000: (1,), 3_000: (1, 4)}, due_each_second=50, schedules_seconds=10, full_plans=False,
    compares=False,
)  # fmt: skip
PLAIN = Form(
    name="plain", each={10: 200, 100: 570, 1000: 3_270}, enqueued=20_000, lateness_seconds=60,
    at_once=(10_000,), each_second=60, burst=10_000, shared=Backlog(200, 200), idle_seconds=120,
)  # fmt: skip
FULL = replace(
    PLAIN, name="full", enqueued=50_000, lateness_seconds=180, at_once=(10_000, 100_000),
    each_second=600, pinned_minutes=60, idle_seconds=3_600, schedules=1_000_000,
    loads={10_000: (1,), 1_000_000: (1, 4), 10_000_000: (1,)}, schedules_seconds=600,
    rows=50_000_000,
)  # fmt: skip
