"""Those who use the ledger meanwhile: they trigger, enqueue, cancel, edit and pause by SQL."""

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any, LiteralString

import psycopg

from tests.cluster.support.jobs import ALIVE, PYTHON

SQL_JOBS: LiteralString = """
CREATE TABLE effects (id text, job text, at timestamptz DEFAULT clock_timestamp());
GRANT INSERT, SELECT ON effects TO PUBLIC;
INSERT INTO cronledger.jobs (name, schedule, handler, target, overlap, queue, stale_timeout) VALUES
 ('once', '* * * * * *', 'sql', '{"sql":
   "INSERT INTO effects VALUES (current_setting(''cronledger.execution_id''), ''once'')"}',
   'skip', 'sql', '6 s');
INSERT INTO cronledger.jobs (name, schedule, handler, queue, stale_timeout, allow_stale_reentry,
  catch_up, overlap) VALUES ('foreign', '*/2 * * * * *', 'external', 'foreign', '6 s', true,
  'all', 'wait');
INSERT INTO cronledger.jobs (name, schedule, handler, stale_timeout, allow_stale_reentry,
  overlap, target) VALUES ('command', '*/3 * * * * *', 'command', '6 s', true, 'wait', %s);
INSERT INTO cronledger.jobs (name, schedule, handler, queue, stale_timeout, target) VALUES
 ('edited', '*/2 * * * * *', 'sql', 'sql', '6 s', '{"sql": "SELECT 1"}');
"""

COMMAND = {"command": [*PYTHON, ALIVE, "2", "deaf"]}
"""Life signs for two seconds, and no ear for SIGTERM."""

EVERY: dict[int, tuple[str, LiteralString]] = {
    2: ("trigger", "SELECT cronledger.trigger('triggered')"),
    5: ("trigger", "SELECT cronledger.trigger('waits')"),
    7: ("pause", "SELECT cronledger.pause('steady', 'chaos', cronledger.db_now() + '2 s')"),
    11: ("edit", "UPDATE cronledger.jobs SET payload = to_jsonb(revision) WHERE name = 'limited'"),
    13: (
        "cancel",
        "SELECT cronledger.cancel(id) FROM (SELECT id FROM cronledger.running"
        " WHERE job_name NOT IN ('once', 'written') ORDER BY random() LIMIT 1) x",
    ),
    17: (
        "edit",
        "UPDATE cronledger.jobs SET schedule = CASE WHEN schedule LIKE '*/2%%'"
        " THEN '*/3 * * * * *' ELSE '*/2 * * * * *' END WHERE name = 'edited'",
    ),
    19: (
        "plan pause",
        "SELECT cronledger.plan_pause('chaos', cronledger.db_now() + '1.5 s',"
        " cronledger.db_now() + '4 s', job => x) FROM unnest(ARRAY['windowed', 'gathered']) x",
    ),
    21: (
        "skip",
        "SELECT cronledger.skip('windowed', to_timestamp(3 * ceil(extract(epoch FROM"
        " cronledger.db_now()) / 3) + 3), 'chaos')",
    ),
    23: ("pause queue", "SELECT cronledger.pause_queue('sql', 'chaos')"),
    24: ("resume queue", "SELECT cronledger.resume_queue('sql')"),
}


class Load:
    """One client that reconnects for ever. `acknowledged`: the ids it was told; `did`: how often
    what it asked for was done."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.acknowledged: set[int] = set()
        self.did: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._dsn = dsn
        self._stop = threading.Event()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What it paused is resumed; it does nothing more."""
        self._stop.set()
        self._thread.join()
        while not self._do("resume queue", "SELECT cronledger.resume_queue('sql')"):
            time.sleep(0.2)
        if self._connection is not None:
            self._connection.close()

    def _run(self) -> None:
        second = 0
        while not self._stop.wait(1):
            second += 1
            tenant = f"t{self._random.randrange(5)}"
            self._do("enqueue", "SELECT cronledger.enqueue('pushed', %s, watermark => %s)",
                     tenant, second)  # fmt: skip
            for period, (what, statement) in EVERY.items():
                if second % period == 0:
                    self._do(what, statement)

    def _do(self, what: str, statement: LiteralString, *values: object) -> bool:
        """Whether the database said that it was done."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._dsn, autocommit=True, application_name="chaos load", connect_timeout=5,
                    options="-c statement_timeout=20s",
                )  # fmt: skip
            row = (cursor := self._connection.execute(statement, values or None)).description and (
                cursor.fetchone()
            )
        except psycopg.errors.RaiseException:
            self.did[f"{what} refused"] += 1
            return True
        except psycopg.Error:
            if self._connection is not None:
                with suppress(psycopg.Error):
                    self._connection.close()
            return False
        self.did[what] += 1
        if what in ("trigger", "enqueue") and row and row[0] is not None:
            self.acknowledged.add(row[0])
        return True
