"""A soak: replicas, a foreign worker, and somebody who pushes, pauses, edits, cancels and kills.

    python -m tests.bench.soak [MINUTES] [--binaries DIR]

The verdict at the end comes from SQL and from lines that handlers wrote outside the database; exit
1 if anything is missing, doubled, overlapping, early, or still running.
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from tabulate import tabulate

from cronledger.ledger.migrate import migrate
from tests.bench.server import durable_server

Connection = psycopg.Connection[tuple[Any, ...]]

SQL_JOBS: LiteralString = """
CREATE TABLE effects (id text, at timestamptz DEFAULT clock_timestamp());
INSERT INTO cronledger.jobs (name, schedule, handler, target, overlap) VALUES
 ('once', '* * * * * *', 'sql', '{"statement":
   "INSERT INTO effects (id) VALUES (current_setting(''cronledger.execution_id''))"}', 'skip');
INSERT INTO cronledger.jobs (name, schedule, handler, queue, stale_timeout, allow_stale_reentry,
  catch_up, overlap) VALUES ('foreign', '*/2 * * * * *', 'external', 'foreign', '5 s', true,
  'all', 'wait');
"""

VERDICT: dict[str, LiteralString] = {
    "still RUNNING": "SELECT count(*) FROM cronledger.executions WHERE status = 'RUNNING'",
    "started early": "SELECT count(*) FROM cronledger.executions WHERE started_at < due_at",
    "beyond max_attempts": """
        SELECT count(*) FROM cronledger.executions WHERE attempt > max_attempts""",
    "overlapping in the ledger": """
        SELECT count(*) FROM cronledger.executions a JOIN cronledger.executions b
          ON (a.job_name, a.scope_kind, a.scope_id) = (b.job_name, b.scope_kind, b.scope_id)
         AND a.plan_time < b.plan_time
         AND tstzrange(a.started_at, a.finished_at) && tstzrange(b.started_at, b.finished_at)
        JOIN cronledger.jobs j ON j.name = a.job_name AND j.overlap <> 'allow'
        WHERE a.started_at < a.finished_at AND b.started_at < b.finished_at""",
    "not accounted for": """
        SELECT coalesce(sum(abs(n.planned - n.ran - n.skipped)), 0) FROM (
          SELECT (SELECT count(*) FROM generate_series(
                    date_trunc('second', s.created_at), s.planned_through, '1 s') g(at)
                  WHERE g.at > s.created_at
                    AND extract(second FROM g.at)::int % p.step = 0) AS planned,
                 (SELECT count(*) FROM cronledger.executions e WHERE e.trigger = 'schedule'
                   AND (e.job_name, e.scope_kind, e.scope_id)
                     = (s.job_name, s.scope_kind, s.scope_id)) AS ran,
                 (SELECT coalesce(sum(k.count), 0) FROM cronledger.skips k
                   WHERE (k.job_name, k.scope_kind, k.scope_id)
                     = (s.job_name, s.scope_kind, s.scope_id)) AS skipped
          FROM cronledger.schedules s JOIN (VALUES ('steady', 1), ('limited', 1), ('once', 1),
            ('waits', 2), ('foreign', 2), ('replaced', 3)) p(job, step) ON p.job = s.job_name) n""",
    "non-reentrant run again after an unknown end": """
        SELECT count(*) FROM cronledger.executions e JOIN cronledger.jobs j ON j.name = e.job_name
        WHERE NOT j.allow_stale_reentry AND e.attempts @> '[{"error_code": "runner_crashed"}]'""",
    "sql effects without SUCCESS, or twice": """
        SELECT (SELECT count(*) FROM (SELECT id FROM effects GROUP BY 1 HAVING count(*) > 1) d)
             + (SELECT count(*) FROM effects f FULL JOIN (SELECT id::text FROM cronledger.executions
                WHERE job_name = 'once' AND status = 'SUCCESS') e USING (id)
                WHERE e.id IS NULL OR f.id IS NULL)""",
    "tenants left dirty": "SELECT count(*) FROM cronledger.input_status WHERE is_dirty",
}


class Soak:
    """The processes, and the one who meddles."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self.lines = directory / "lines"
        self.lines.touch()
        self._directory = directory
        self._environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("CRONLEDGER_")},
            "CRONLEDGER_DATABASE_URL": dsn,
            "SOAK_LINES": str(self.lines),
        }
        self._c: Connection = psycopg.connect(dsn, autocommit=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._numbers = itertools.count()
        self.did: Counter[str] = Counter()
        self._ended: set[str] = set()

    def sql(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        cursor = self._c.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def start(self, *argv: str) -> None:
        log = (self._directory / f"{next(self._numbers)}.log").open("wb")
        self._processes.append(
            subprocess.Popen(
                argv, env=self._environ, stdout=log, stderr=log, start_new_session=True
            )
        )

    def replica(self) -> None:
        command = str(Path(sys.executable).parent / "cronledger")
        queues = ("--queue", "default", "--queue", "foreign")
        self.start(command, "run", "tests.bench.soak_jobs:app", "--slots", "16", *queues)

    def worker(self) -> None:
        self.start("examples/worker.sh", "foreign", "sh", "-c", "cat > /dev/null; sleep 0.3")

    def kill(self, index: int) -> None:
        """kill -9, and another one in its place."""
        process = self._processes.pop(index)
        process.kill()
        process.wait()
        self.did["kill -9"] += 1

    def meddle(self, second: int) -> None:
        tenant = f"t{random.randrange(5)}"
        self.sql("SELECT cronledger.enqueue('pushed', %s, watermark => %s)", tenant, second)
        self.did["enqueue"] += 1
        every: dict[int, tuple[str, LiteralString]] = {
            5: ("trigger", "SELECT cronledger.trigger('waits')"),
            7: ("pause", "SELECT cronledger.pause('steady', 'soak', cronledger.db_now() + '2 s')"),
            11: ("edit", "UPDATE cronledger.jobs SET payload = to_jsonb(revision)"
                         " WHERE name = 'limited'"),
            13: ("cancel", "SELECT cronledger.cancel(id) FROM cronledger.running"
                           " WHERE job_name <> 'once' ORDER BY random() LIMIT 1"),
        }  # fmt: skip
        for period, (what, statement) in every.items():
            if second % period == 0:
                self.sql(statement)
                self.did[what] += 1
        if second % 40 == 20:
            self.kill(random.randrange(3))
            self.replica()
            self._processes.insert(0, self._processes.pop())
        if second % 90 == 45:
            self.kill(len(self._processes) - 1)
            self.worker()

    def run(self, seconds: int) -> None:
        for _ in range(3):
            self.replica()
        while not self.sql("SELECT 1 FROM cronledger.jobs WHERE name = 'pushed'"):
            time.sleep(0.2)
        self.sql(SQL_JOBS)
        self.worker()
        begun = time.monotonic()
        for second in range(1, seconds + 1):
            self.meddle(second)
            time.sleep(max(0.0, begun + second - time.monotonic()))

    def settle(self) -> None:
        """What runs ends; what was killed is swept or stolen; then everybody drains."""
        self.sql("UPDATE cronledger.jobs SET paused_at = cronledger.db_now()"
                 " WHERE name <> 'pushed' AND paused_at IS NULL")  # fmt: skip
        give_up = time.monotonic() + 60
        while self.sql(
            "SELECT 1 FROM cronledger.executions WHERE status = 'RUNNING'"
            " UNION ALL SELECT 1 FROM cronledger.input_status WHERE is_dirty"
        ):
            if time.monotonic() > give_up:
                break
            time.sleep(0.5)
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(60)

    def lines_overlapping(self) -> int:
        """Handlers of one (job, scope) that were alive at once, by what they wrote themselves."""
        alive: dict[tuple[str, str], set[str]] = {}
        both = 0
        for line in sorted(self.lines.read_text().splitlines(), key=lambda x: float(x.split()[0])):
            _, word, job, scope, execution, attempt = line.split()
            now = alive.setdefault((job, scope), set())
            if word == "end":
                now.discard(f"{execution}/{attempt}")
                continue
            # One that was killed never says its end; its lease answers for it.
            both += len(now & self._ended)
            now.clear()
            now.add(f"{execution}/{attempt}")
        return both

    def verdict(self) -> list[tuple[str, int]]:
        ends = {tuple(x.split()[4:]) for x in self.lines.read_text().splitlines() if " end " in x}
        self._ended = {"/".join(pair) for pair in ends}
        found = [(what, int(self.sql(query)[0][0])) for what, query in VERDICT.items()]
        return [*found, ("alive at once, by lines outside", self.lines_overlapping())]


def main() -> int:
    """Soak, print; answers the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=10)
    parser.add_argument("--binaries")
    options = parser.parse_args()
    with durable_server(options.binaries) as dsn, tempfile.TemporaryDirectory() as directory:
        migrate(dsn)
        soak = Soak(dsn, Path(directory))
        soak.run(round(options.minutes * 60))
        soak.settle()
        verdict = soak.verdict()
        print(tabulate(soak.did.items(), ("done to it", "times")), "\n")
        rows = soak.sql("SELECT job_name, status, count(*), sum(attempt) FROM cronledger.executions"
                        " GROUP BY 1, 2 ORDER BY 1, 2")  # fmt: skip
        print(tabulate(rows, ("job", "status", "executions", "attempts")), "\n")
        print(tabulate(verdict, ("must be 0", "found")))
        return int(any(count for _, count in verdict))


if __name__ == "__main__":
    sys.exit(main())
