"""The bench on which random calls meet one ledger: its stopped clock, two replicas, the model."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from psycopg.types.json import Jsonb

from tests.db.support.engine import FUNCTION, TICK, Ledger, Runner
from tests.db.support.model_of_ledger import Model
from tests.db.support.model_of_rows import CALENDAR, COLUMNS, HOSTS, Known, Policy, Row, Rows

START = datetime(2030, 1, 7, 12, 0, 30, 500_000, tzinfo=UTC)
EMPTIED = (
    "executions", "skips", "schedules", "job_revisions", "jobs", "rolled_up_hours", "changed_hours",
    "windows", "pauses", "unsettled_pauses", "gates", "hosts", "host_absences",
)  # fmt: skip


class Bench:
    """What all examples share: one database, its stopped clock, two replicas."""

    def __init__(self, url: str) -> None:
        self.ledger = Ledger(url)
        self.ledger.stop_clock(START)
        self.loop = asyncio.Runner()
        self.replicas = [
            Runner(url, name, labels=(f"host={host}",)) for name, host in HOSTS.items()
        ]
        for replica in self.replicas:
            self.loop.run(replica.open())
        self.url = url
        self.examples = 0
        self.reached: Counter[str] = Counter()

    def clear(self) -> None:
        """Nothing is left of the example before."""
        self.examples += 1
        for replica in self.replicas:
            replica.crash()
        with psycopg.connect(self.url, options="-csearch_path=cronledger") as c:
            c.execute("SET session_replication_role = replica")
            for table in EMPTIED:
                c.execute(f"DELETE FROM {table}".encode())
            c.execute("DELETE FROM runners WHERE version = 'external'")
            c.execute("UPDATE time_travel SET ahead = '0'")

    def close(self) -> None:
        for replica in self.replicas:
            self.loop.run(replica.close())
        self.loop.close()
        self.ledger.close()


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    overlap = draw(st.sampled_from(["skip", "wait", "allow", "replace"]))
    catch_up = draw(st.sampled_from(["latest", "skip", "all"]))
    handler = draw(st.sampled_from(["python", "python", "external"]))
    return Policy(
        handler,
        draw(st.sampled_from([None, None, "@every 60s"])),
        overlap,
        "latest" if overlap == "skip" and catch_up == "all" else catch_up,
        draw(st.booleans()),
        draw(st.integers(1, 3)),
        timedelta(seconds=draw(st.sampled_from([0, 30]))),
        timedelta(seconds=draw(st.sampled_from([30, 60]))),
        draw(st.sampled_from([None, None, 1, 2])),
        draw(st.sampled_from([False, False, True])),
        windows=overlap != "allow" and draw(st.booleans()),
        ungated=draw(st.sampled_from([False, False, True])),
        wait_at_most=draw(st.sampled_from([None, timedelta(seconds=200)])),
        hosts=handler == "python" and draw(st.sampled_from([False, False, True])),
    )


picks = st.integers(0, 11)
replicas = st.integers(0, 1)
zombie_ends = st.sampled_from(["mark", "error", "retry", "discard", "cancelled", "back"])


class Bound(RuleBasedStateMachine):
    """One example at its beginning: jobs, and the law that ledger and model agree."""

    bench: ClassVar[Bench]

    def __init__(self) -> None:
        super().__init__()
        self.bench.clear()
        self.ledger = self.bench.ledger
        self.model = Model()
        self.model.now = START
        self.pushes = 0
        self.before: Rows = {}

    # -- what rules need ---------------------------------------------------------------------------

    def find(self) -> Rows:
        return {
            row[0]: Row(*row) for row in self.ledger.values(f"SELECT {COLUMNS} FROM executions")
        }

    def pass_time(self, by: timedelta) -> None:
        self.ledger.pass_time(by)
        self.model.now += by

    def run(self, step: Any) -> Any:
        return self.bench.loop.run(step)

    def pick_row(self, pick: int) -> Row | None:
        rows = sorted(self.model.rows.values(), key=lambda r: r.id)
        return rows[-1 - pick % len(rows)] if rows else None

    def pick_scope(self, pick: int) -> tuple[str, str]:
        scopes = [(name, s) for name, job in self.model.jobs.items() for s in job.scopes]
        return scopes[pick % len(scopes)]

    def read_revision(self, name: str, policy: Policy) -> None:
        """After a write to a job: its new revisions, if there are any, have this policy."""
        known = self.model.jobs[name]
        known.policy = policy
        known.history += [
            (number, since, policy)
            for number, since in self.ledger.values(
                "SELECT revision, effective_from FROM job_revisions WHERE job_name = %s"
                " AND revision > %s ORDER BY revision",
                name, known.history[-1][0] if known.history else 0,
            )
        ]  # fmt: skip

    def take_up_pauses(self) -> None:
        """A worker begins the planned pauses that are due."""
        self.ledger.values("SELECT cronledger_internal.take_up_pauses()")
        self.pauses_are_taken_up()

    def pauses_are_taken_up(self) -> None:
        """Every pause that is due has begun, and each job is paused in the union of its pauses.

        The end of a pause may be unstated until a sweep.
        """
        model = self.model
        for pause in model.pauses.values():
            if not pause.begun and not pause.ended and pause.begins <= model.now:
                pause.begun = True
                self.bench.reached["a planned pause begins"] += 1
        for name, at, until in self.ledger.values(
            "SELECT name, paused_at, paused_until FROM jobs ORDER BY name"
        ):
            known, expected = model.jobs[name], model.paused(name)
            over = at is None or (until is not None and until <= model.now)
            assert over if expected is None else (at, until) == expected, (name, at, until)
            known.paused_at, known.paused_until = at, until
            self.read_revision(name, known.policy)

    # -- jobs --------------------------------------------------------------------------------------

    @initialize(
        drawn=st.lists(st.tuples(policies(), st.integers(1, 2)), min_size=1, max_size=3),
        gates=st.lists(st.sampled_from([None, "requires", "after"]), min_size=3, max_size=3),
        last=st.tuples(picks, replicas, zombie_ends),
    )
    def declare(
        self, drawn: list[tuple[Policy, int]], gates: list[str | None], last: tuple[int, int, str]
    ) -> None:
        """The jobs, each of which may require the one before; and how every example ends."""
        self.last = last
        self.set_calendar(excluded=False)
        before = None
        for letter, (drawn_policy, drawn_count), gate in zip("abc", drawn, gates, strict=False):
            policy, count = drawn_policy, drawn_count
            # A name of its own for each example: replicas remember revisions by name.
            name = f"{letter}{self.bench.examples:06}"
            if before is None and any(gates):
                policy = replace(policy, schedule="@every 60s")
            elif before is not None and gate is not None:
                policy, count = self.gated(policy, before, gate), self.scopes_of(before, count)
            if policy.schedule is not None:
                before = name
            scopes = ("one", "two")[:count]
            target = {"python": FUNCTION} if policy.handler == "python" else {}
            self.ledger.job(
                name, target=target, scope_kind=policy.kind, scopes=list(scopes), **policy.columns()
            )
            self.model.jobs[name] = Known(policy, scopes)
            self.read_revision(name, policy)

    def scopes_of(self, upstream: str, count: int) -> int:
        return min(count, len(self.model.jobs[upstream].scopes))

    def gated(self, policy: Policy, upstream: str, gate: str) -> Policy:
        required = self.model.jobs[upstream].policy
        handler = "python" if required.hosts else policy.handler
        policy = replace(policy, hosts=required.hosts, handler=handler)
        if gate == "after":
            return replace(
                policy, after=upstream, schedule=required.schedule, calendar=required.calendar
            )
        return replace(policy, requires=upstream, schedule=required.schedule)

    def set_calendar(self, *, excluded: bool) -> None:
        """Set the calendar, which excludes all days of the example or none."""
        self.excluded = excluded
        today = self.model.now.date()
        days = [today + timedelta(days=n) for n in range(-2, 9)] if excluded else []
        self.ledger.values(
            "SELECT set_calendar(%s, %s, first => %s, through => %s)",
            CALENDAR, Jsonb({str(day): "Closed" for day in days}), today - timedelta(days=400),
            today + timedelta(days=4000),
        )  # fmt: skip

    def pick_job(self, pick: int) -> str:
        return sorted(self.model.jobs)[pick % len(self.model.jobs)]

    def change(self, name: str, new: Policy) -> None:
        """Edit a job. Those that are planned after it follow."""
        self.ledger.edit(name, **new.columns())
        self.read_revision(name, new)
        for other, known in self.model.jobs.items():  # upstreams come first
            if known.policy.after is not None:
                upstream = self.model.jobs[known.policy.after].policy
                self.read_revision(other, replace(known.policy, calendar=upstream.calendar))

    @invariant()
    def the_ledger_is_as_the_model_says(self) -> None:
        found, rows = self.find(), self.model.rows
        assert found == rows, [
            (found.get(id), rows.get(id)) for id in {*found, *rows} if found.get(id) != rows.get(id)
        ]
        for id, row in found.items():
            before = self.before.get(id)
            if before is None:
                continue
            if before.status == "SUCCESS":
                assert row == before  # I4
            assert row.attempt >= before.attempt
            assert row.plan_time == before.plan_time
        assert not self.before.keys() - found.keys()
        self.before = found
        # The next call comes later: only what one call does happens at one instant.
        self.pass_time(TICK)
