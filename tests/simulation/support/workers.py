"""Workers in other languages: processes that know the SQL functions of the ledger and nothing else.

A good one counts its lease from before it asked, renews it, and stops at its end. A careless one
renews nothing and goes on past it, a tireless one renews too late and goes on until it is told that
the lease is lost: what they say then must be refused once another has it.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from cronledger.declaring.app import CancelToken, Context
from cronledger.engine.running.handlers.transaction import LEASE_IS_LOST
from cronledger.rules.model import ExecutionKey, Trigger, Window
from tests.simulation.support.access import Pool
from tests.simulation.support.effects import WRITE
from tests.simulation.support.jobs import QUEUES
from tests.simulation.support.loop import Process
from tests.simulation.support.record import Span

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster

SHORTEST_LEASE = 3.0
TRIES = 8
_CLAIM = """
SELECT id, job_name, scope_kind, scope_id, plan_time, attempt, trigger, payload, lease_token,
       stale_timeout, run_timeout, window_start
FROM cronledger.claim_next(%s, %s, %s)
"""


@dataclass(eq=False)
class Held:
    """One execution that a worker has, as far as it knows. `until`, `renewed` and `stop_at` on its
    own clock; `why` it was asked to stop; `answered`: what became of it is known."""

    id: int
    key: ExecutionKey
    attempt: int
    token: UUID
    length: float
    stale_timeout: timedelta
    run_timeout: float
    renewed: float
    context: Context
    span: Span | None = None
    work: "asyncio.Task[str] | None" = None
    why: str | None = None
    answered: bool = False
    ending: bool = False
    told_of_end: bool = False  # the ledger may have heard how it ended

    @property
    def until(self) -> float:
        """Before the ledger's stale_after by the way there and a margin."""
        return self.renewed + 0.9 * self.length


class Workers:
    """All workers of a simulation, and what may be said against them."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.held: dict[UUID, Held] = {}
        self._finished: list[Held] = []

    def start(self, process: Process) -> None:
        worker = Worker(self._cluster, self, process)
        self._cluster.loop.spawn(process.main, worker.live(), f"worker {process.name}")

    def leapt_since(self, instant: float) -> bool:
        """Whether the database's clock was put forward since then."""
        return any(leap.at >= instant for leap in self._cluster.leaps)

    def excuse_theft(self, thief: Held) -> None:
        """docs/reliability.md, Known limits: a worker has only the database's clock. After a
        forward leap it may steal a lease that is live on every other clock; only then, only from a
        worker, and only what is reentrant."""
        now = self._cluster.loop.time()
        for victim in self.held.values():
            live = now - victim.renewed < victim.length
            if (
                victim.key == thief.key and victim.attempt < thief.attempt
                and live and self.leapt_since(victim.renewed)
                and self._cluster.record.rules[thief.key.job_name].reentrant
            ):  # fmt: skip
                self._cluster.trace("robbed", victim.key.job_name, victim.attempt)
                self._cluster.record.robbed.add(victim.token)

    def judge(self, held: Held, call: str, answer: str) -> None:
        """Hold what a function answered against the ledger."""
        row = self._cluster.database.eye.execute(
            "SELECT status, error_code FROM executions WHERE lease_token = %s", (held.token,)
        ).fetchone()
        status, error = row or (None, None)
        ours = status is not None and error != "stale_timeout"
        wrong = {
            "lost": status == "RUNNING" or (ours and call != "heartbeat"),
            "already_finished": not held.told_of_end,
            "ok": held.why == "lost",
            "cancel_requested": held.why == "lost",
        }[answer]
        if wrong:
            self._cluster.wrong(
                f"{call} of {self._name(held)} said {answer}, the row is {status} {error}"
            )

    def succeeded(self, held: Held) -> None:
        """finish said ok, and its transaction is committed."""
        self._finished.append(held)

    def judge_all(self) -> None:
        """In the end: what was acknowledged as SUCCESS is one."""
        for held in self._finished:
            found = self._cluster.database.eye.execute(
                "SELECT 1 FROM executions WHERE lease_token = %s AND status = 'SUCCESS'",
                (held.token,),
            ).fetchone()
            if found is None:
                self._cluster.wrong(f"finish of {self._name(held)} said ok, and it is no SUCCESS")

    def _name(self, held: Held) -> str:
        return f"{held.key.job_name}/{held.key.scope_id} {held.key.plan_time} #{held.attempt}"


class Worker:
    """One process. Its heartbeats have a thread of their own, as a sidecar would."""

    def __init__(self, cluster: "Cluster", workers: Workers, process: Process) -> None:
        self._cluster = cluster
        self._workers = workers
        self._process = process
        self._random = random = Random(f"{cluster.seed} {process.name}")
        self._pool = Pool(cluster, process, 4, 5.0)
        self._beats = Pool(cluster, process, 4, 2.0)
        self._careless = random.random() < 0.3
        self._explicit = random.random() < 0.5  # says how long the lease is to be
        self._slots = random.choice((1, 2, 3))
        self._poll = random.choice((0.5, 1.0, 1.0, 2.0))
        self._tireless = random.random() < 0.25
        self._leaves_at = cluster.loop.time() + random.uniform(3, 60)
        self._runs: set[asyncio.Task[None]] = set()

    async def live(self) -> None:
        """Asks for work again and again; perhaps leaves, and another takes its place."""
        while self._cluster.loop.time() < self._leaves_at or self._cluster.settling:
            await asyncio.sleep(self._random.uniform(0.5, 1.0) * self._poll)
            free = self._slots - len(self._runs)
            if free <= 0:
                continue
            try:
                claimed = await self._claim(self._random.randint(1, free))
            except psycopg.Error as error:
                self._cluster.trace("no claim", self._process.name, type(error).__name__)
                continue
            for held in claimed:
                run = asyncio.create_task(self._run(held), name=f"external {held.id}")
                self._runs.add(run)
                run.add_done_callback(self._runs.discard)
        await self._leave()

    async def _leave(self) -> None:
        for held in tuple(self._workers.held.values()):
            if held.span is not None and held.span.process is self._process:
                self._stop(held, "leaves")
        while self._runs:
            await asyncio.wait(self._runs)
        self._cluster.trace("left", self._process.name)
        self._cluster.kill(self._process)

    async def _claim(self, most: int) -> list[Held]:
        sent = self._cluster.loop.time()
        asked = (self._random.choice(QUEUES), self._process.runner, most)
        async with self._pool.connection() as c:
            if self._random.random() < 0.8:
                rows = await (await c.execute(_CLAIM, asked)).fetchall()
            else:
                async with c.transaction():
                    rows = await (await c.execute(_CLAIM, asked)).fetchall()
                    await asyncio.sleep(self._random.choice((0.0, 0.02, 0.6)))
        return [self._took(row, sent) for row in rows]

    def _took(self, row: tuple[Any, ...], sent: float) -> Held:
        (execution, job, kind, scope, plan, attempt, trigger, payload, token, stale, limit,
         window) = row  # fmt: skip
        context = Context(
            execution_id=execution, job=job, scope_kind=kind, scope_id=scope, plan_time=plan,
            trigger=Trigger(trigger), attempt=attempt, payload=payload, lease_token=token,
            runner_id=self._process.runner, cancel_token=CancelToken(), _held=lambda: True,
            window=None if window is None else Window(window, plan),
        )  # fmt: skip
        # Who does not say how long its lease is to be learns of no edit that makes it shorter.
        length = stale.total_seconds() if self._explicit else SHORTEST_LEASE
        held = Held(
            execution, ExecutionKey(job, kind, scope, plan), attempt, token, length, stale,
            limit.total_seconds(), sent, context,
        )  # fmt: skip
        self._workers.held[token] = held
        return held

    # -- one execution --------------------------------------------------------------------------

    async def _run(self, held: Held) -> None:
        loop, handlers = self._cluster.loop, self._cluster.handlers
        if loop.time() >= held.until:  # the answer was too long under way
            await self._tell(held, "release", "SELECT cronledger.release(%s, %s)")
            return
        self._workers.excuse_theft(held)
        began = loop.time()
        row_is_ours = self._cluster.database.eye.execute(
            "SELECT 1 FROM executions WHERE lease_token = %s AND status = 'RUNNING'", (held.token,)
        ).fetchone()
        if row_is_ours is None and self._workers.leapt_since(held.renewed):
            self._cluster.record.robbed.add(held.token)
        held.span = span = self._cluster.record.begin(
            held.context, self._process, began, self._cluster.now()
        )
        self._cluster.trace("begin", span)
        handlers.look_at(span)
        random = handlers.random_of(span)
        work = self._work(span, random, held.length * random.choice((0, 0.8, 1.6)))
        held.work = asyncio.create_task(work, name=f"work {held.id}")
        limit = began + held.run_timeout
        if self._careless or self._tireless:
            loop.spawn(None, self._forgets(held), "careless")
        if self._tireless:
            share = random.choice((0.7, 1.2, 1.6))
            loop.spawn(self._process.beat, self._keep(held, share), "keep")
        elif not self._careless:
            loop.spawn(self._process.beat, self._keep(held), "keep")
            loop.spawn(self._process.beat, self._watch(held, limit), "watch")
        how = await held.work
        await self._end(held, how, random)
        held.answered = True
        del self._workers.held[held.token]

    async def _work(self, span: Span, random: Random, longer: float) -> str:
        """`longer`: than a lease, where the worker is tireless."""
        how = "cancelled"
        try:
            if self._tireless and not self._cluster.settling:
                await asyncio.sleep(longer)
            how = await self._cluster.handlers.work(random)
        except asyncio.CancelledError:
            if random.random() < 0.1:
                how = "stubborn"
                await asyncio.sleep(random.uniform(0.1, 3.0))
        finally:
            self._cluster.handlers.ended(span, how)
        return how

    def _stop(self, held: Held, why: str) -> None:
        if held.why is None or why == "lost":
            held.why = why
            held.context.cancel_token.cancel()
            if held.work is not None:
                held.work.cancel()

    async def _watch(self, held: Held, limit: float) -> None:
        """Nobody goes on past its lease or its run_timeout."""
        loop = self._cluster.loop
        while not held.answered and held.why is None:
            await asyncio.sleep(max(0.0, min(held.until, limit) - loop.time()))
            if loop.time() >= held.until:
                self._stop(held, "expired")
            elif loop.time() >= limit:
                self._stop(held, "timeout")

    async def _forgets(self, held: Held) -> None:
        """It was told until when it has the lease, and does not look."""
        loop = self._cluster.loop
        while not held.answered and held.until > loop.time():  # noqa: ASYNC110 - it may be renewed
            await asyncio.sleep(held.until - loop.time())
        held.context.cancel_token.cancel()

    async def _keep(self, held: Held, share: float = 1 / 3) -> None:
        """Renews after this share of the lease."""
        loop = self._cluster.loop
        lease = held.stale_timeout if self._explicit else None
        wait = held.renewed + share * held.length - loop.time()
        while True:
            await asyncio.sleep(max(0.0, wait))
            if held.answered or held.why in ("lost", "expired"):
                return
            sent, wait = loop.time(), share * held.length
            try:
                answer = await self._ask(self._beats, "SELECT cronledger.heartbeat(%s, %s, %s)",
                                         held, lease)  # fmt: skip
            except psycopg.Error:
                wait = 0.2
                continue
            if held.answered or (held.ending and answer == "lost"):
                return
            self._workers.judge(held, "heartbeat", answer)
            if answer == "lost":
                self._stop(held, "lost")
                return
            held.renewed = sent
            if answer == "cancel_requested":
                self._stop(held, "cancelled")

    # -- its end --------------------------------------------------------------------------------

    async def _end(self, held: Held, how: str, random: Random) -> None:
        """Tell the ledger. What was stopped is not said to have succeeded, unless it is refused."""
        held.ending = True
        fail = "SELECT setseed(%s)::text, cronledger.fail(%s, %s, 'work', 'it failed'"
        draw = random.random()
        match held.why, how:
            case "lost", _:
                if draw < 0.7:  # a zombie that has not understood
                    await self._tell(held, "finish", "SELECT cronledger.finish(%s, %s)")
            case (("expired" | "leaves"), _) if how != "success":  # it ended at the same moment
                await self._tell(held, "release", "SELECT cronledger.release(%s, %s)")
            case (("cancelled" | "timeout"), _):
                await self._tell(held, "fail", f"{fail})", draw)
            case _, "success":
                await self._succeed(held, draw)
            case _, "retry":
                wait = random.choice(("0 s", "0.7 s", "3 s"))
                await self._tell(held, "fail", f"{fail}, retry_after => '{wait}')", draw)
            case _, "discard":
                await self._tell(held, "fail", f"{fail}, final => true)", draw)
            case _:
                await self._tell(held, "fail", f"{fail})", draw)

    async def _succeed(self, held: Held, draw: float) -> None:
        if self._cluster.scene.transactions and draw > 0.4:
            await self._write(held)
        elif draw < 0.2:
            await self._tell(held, "finish", "SELECT cronledger.finish(%s, %s, '{}', 1000000)")
        else:
            await self._tell(held, "finish", "SELECT cronledger.finish(%s, %s, '[1]')")

    async def _write(self, held: Held) -> None:
        """Its effect and its SUCCESS in one transaction, until that is known to be so or not."""
        self._cluster.effects.wrote.add(held.token)
        for _ in range(TRIES):
            try:
                async with self._pool.connection() as c, c.transaction():
                    await c.execute("SELECT cronledger.assert_lease(%s, %s)", (held.id, held.token))
                    await c.execute(WRITE, (held.token,))
                    await asyncio.sleep(self._random.choice((0.0, 0.01, 1.0)))
                    finish = "SELECT cronledger.finish(%s, %s)"
                    row = await (await c.execute(finish, (held.id, held.token))).fetchone()
            except psycopg.Error as error:
                if error.sqlstate == LEASE_IS_LOST:  # or an earlier COMMIT without an answer landed
                    await self._tell(held, "finish", "SELECT cronledger.finish(%s, %s)")
                    return
                self._cluster.trace("not written", self._process.name, type(error).__name__)
                held.told_of_end = True
                await asyncio.sleep(0.5)
                continue
            self._answered(held, "finish", row[0])
            return

    async def _tell(self, held: Held, call: str, statement: str, seed: float | None = None) -> None:
        """Until it is answered, or for a while."""
        for _ in range(TRIES):
            try:
                answer = await self._ask(self._pool, statement, held, seed=seed)
            except psycopg.Error as error:
                self._cluster.trace("not told", self._process.name, call, type(error).__name__)
                held.told_of_end = True
                await asyncio.sleep(0.5)
                continue
            self._answered(held, call, answer)
            return

    def _answered(self, held: Held, call: str, answer: str) -> None:
        self._cluster.trace(call, self._process.name, held.key.job_name, held.attempt, answer)
        self._workers.judge(held, call, answer)
        held.told_of_end = True
        if call == "finish" and answer == "ok":
            self._workers.succeeded(held)

    async def _ask(
        self, pool: Pool, statement: str, held: Held, *more: Any, seed: float | None = None
    ) -> str:
        """The last column of the one row that it answers."""
        values = (*(() if seed is None else (seed,)), held.id, held.token, *more)
        async with pool.connection() as c:
            row = await (await c.execute(statement, values)).fetchone()
        return str(row[-1])
