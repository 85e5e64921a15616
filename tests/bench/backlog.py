"""A backlog of missed plan_times through replicas: executions per second, and CPU time of each."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta

from tests.bench.ledger import Ledger, new_ledger
from tests.bench.product import OURS, Product
from tests.bench.sample import Sample
from tests.bench.server import Server
from tests.bench.usage import Usage

QUEUE = "default"

_DONE = """
NOT EXISTS (SELECT FROM cronledger.schedules WHERE next_due_at IS NOT NULL AND job_name = %(job)s)
AND NOT EXISTS (SELECT FROM cronledger.executions
                WHERE next_attempt_at IS NOT NULL AND job_name = %(job)s)
AND NOT EXISTS (SELECT FROM cronledger.executions
                WHERE status = 'RUNNING' AND job_name = %(job)s)
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """So many scopes of one job, each with so many plan_times that were missed, one per second."""

    scopes: int
    each: int

    @property
    def rows(self) -> int:
        return self.scopes * self.each


def drain_backlog(
    server: Server,
    backlog: Backlog,
    slots: int,
    *,
    replicas: int = 1,
    product: Product = OURS,
    options: Sequence[str] = (),
    **policies: object,
) -> Sample:
    with (
        new_ledger(server, product) as ledger,
        replicas_of(ledger, slots, replicas, options) as pids,
    ):
        return drain_once(ledger, pids, "backlog", backlog, **policies)


def drain_enqueued(server: Server, rows: int, slots: int) -> Sample:
    with new_ledger(server) as ledger, replicas_of(ledger, slots) as pids:
        return drain_messages(ledger, pids, "messages", rows)


@contextmanager
def replicas_of(
    ledger: Ledger, slots: int, replicas: int = 1, options: Sequence[str] = ()
) -> Iterator[list[int]]:
    """Run so many replicas while the queue is paused. Yields their pids."""
    ledger.connection.execute(
        "INSERT INTO cronledger.queues (name, paused_at) VALUES (%s, cronledger.db_now())", [QUEUE]
    )
    with ExitStack() as running:
        yield [
            running.enter_context(ledger.product.replica(ledger.dsn, slots, *options))
            for _ in range(replicas)
        ]


def drain_once(
    ledger: Ledger, pids: Sequence[int], job: str, backlog: Backlog, **policies: object
) -> Sample:
    """Create the backlog as a job of that name, and let the replicas execute it."""
    create_backlog(ledger, job, backlog, **policies)
    return _drain(ledger, pids, job, backlog.rows)


def drain_messages(ledger: Ledger, pids: Sequence[int], job: str, rows: int) -> Sample:
    """Enqueue so many messages for a new job of that name, and let the replicas execute them."""
    ledger.declare(job, None, queue=QUEUE)
    ledger.enqueue_many(job, rows)
    return _drain(ledger, pids, job, rows)


def _drain(ledger: Ledger, pids: Sequence[int], job: str, rows: int) -> Sample:
    """Resume the queue until nothing of the job is due or running, and pause it again.

    The replicas run already, so that the cost of their start does not count.
    """
    ledger.settle()
    before = Usage.until_now(pids, ledger.connection)
    ledger.one("SELECT cronledger.resume_queue(%(queue)s)", queue=QUEUE)
    ledger.wait_for(_DONE, job=job)
    usage = Usage.until_now(pids, ledger.connection).since(before)
    ledger.one("SELECT cronledger.pause_queue(%(queue)s)", queue=QUEUE)
    row = ledger.one(
        """SELECT count(*) AS rows, extract(epoch FROM
        max(finished_at) - min(started_at))::float8 AS seconds
        FROM cronledger.executions WHERE status = 'SUCCESS' AND job_name = %(job)s""",
        job=job,
    )
    if row["rows"] != rows:
        raise RuntimeError(f"{rows} executions were due, {row['rows']} ran")
    return Sample.of(rows, row["seconds"], usage)


def create_backlog(ledger: Ledger, job: str, backlog: Backlog, **policies: object) -> None:
    """Create a job whose history began before now and ends now, so that `verify` expects it."""
    end = ledger.one("SELECT date_trunc('second', cronledger.db_now()) AS now")["now"]
    ledger.declare(
        job, "* * * * * *", scopes=backlog.scopes, catch_up="all", catch_up_limit=10_000,
        queue=QUEUE, ends_at=end, **policies,
    )  # fmt: skip
    start = end - timedelta(seconds=backlog.each)
    ledger.connection.execute(
        "UPDATE cronledger.job_revisions SET effective_from = %s WHERE job_name = %s", [start, job]
    )
    ledger.connection.execute(
        "UPDATE cronledger.schedules SET created_at = %s, planned_through = %s WHERE job_name = %s",
        [start, start, job],
    )
