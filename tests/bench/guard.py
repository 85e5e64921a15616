"""A guard against rising cost: ratios to a floor of the same run, beside those that are recorded.

Wall time depends on what else the machine does, by a factor of six. These figures hardly do:

- `cpu_10`, `cpu_100`, `cpu_1000`: CPU time of an execution of a backlog with so many slots, in the
  replica and in the server, as a multiple of the floor's (tests/bench/floor.py). The floor has
  batches of as many rows (500 at most), so that a busy machine makes both dearer alike.
- `cpu_lone`: likewise, of a firing that has no other one within 0.1 s. The floor's batches are of
  one row.
- `blocks`: blocks of memory that Python holds for a running execution, as a multiple of those for
  an asyncio task (tests/bench/held_blocks.py).

Each ratio is the median of five repetitions. One that is more than 1.5 times the recorded one is a
fault. The server is that of the pip package, whose version is pinned by the environment.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median

from tests.bench.backlog import Backlog, drain_once, replicas_of
from tests.bench.floor import BATCH, insert_and_finish
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.product import ROOT
from tests.bench.sample import Sample, cpu, ratio
from tests.bench.server import Server
from tests.bench.usage import Usage
from tests.processes import clean_environ

RECORDED = Path(__file__).with_name("recorded_ratios.json")
REPEATS = 5
FACTOR = 1.5

FLOOR_ROWS = {10: 1_000, 100: 3_000, 1000: 6_000}
BACKLOGS = {10: Backlog(20, 30), 100: Backlog(20, 100), 1000: Backlog(20, 200)}

LONE = 10
"""Jobs that fire once a second, 0.1 s after one another."""
LONE_ROWS = 300
LONE_SECONDS = 3

RERECORD = "make bench RECORD=1"


def measure(server: Server) -> dict[str, float]:
    ratios = {f"cpu_{slots}": cpu_ratio(server, slots, backlog)
              for slots, backlog in BACKLOGS.items()}  # fmt: skip
    return {**ratios, "cpu_lone": lone_ratio(server), "blocks": block_ratio(server)}


def cpu_ratio(server: Server, slots: int, backlog: Backlog) -> float:
    """Return the CPU time of an execution as a multiple of the floor's."""
    with (
        new_ledger(server) as ledger,
        new_ledger(server, verify=False) as beside,
        replicas_of(ledger, slots) as pids,
    ):
        drain_once(ledger, pids, "warm-up", Backlog(backlog.scopes, 10))
        floors, samples = [], []
        for n in range(REPEATS):
            floors.append(
                insert_and_finish(beside, FLOOR_ROWS[slots], min(slots, BATCH)).sample.json()
            )
            samples.append(drain_once(ledger, pids, f"backlog-{n}", backlog).json())
    return round(ratio(samples, floors, cpu), 2)


def lone_ratio(server: Server) -> float:
    """Return the CPU time of a lone firing as a multiple of the floor's."""
    with (
        new_ledger(server) as ledger,
        new_ledger(server, verify=False) as beside,
        ledger.product.replica(ledger.dsn, LONE) as pid,
    ):
        for n in range(LONE):
            delay = timedelta(seconds=n / LONE)
            ledger.declare(f"lone-{n}", "* * * * * *", schedule_delay=delay)
        ledger.wait_for("(SELECT count(*) FROM cronledger.executions) >= 10")
        floors, samples = [], []
        for _ in range(REPEATS):
            floors.append(insert_and_finish(beside, LONE_ROWS, 1).sample.json())
            samples.append(_fire_alone(ledger, pid).json())
    return round(ratio(samples, floors, cpu), 2)


def _fire_alone(ledger: Ledger, pid: int) -> Sample:
    count = "SELECT count(*) AS n FROM cronledger.executions"
    ended, before = ledger.one(count)["n"], Usage.until_now([pid], ledger.connection)
    time.sleep(LONE_SECONDS)  # a query would count as work
    usage = Usage.until_now([pid], ledger.connection).since(before)
    return Sample.of(ledger.one(count)["n"] - ended, LONE_SECONDS, usage)


def block_ratio(server: Server) -> float:
    """Return the blocks of a running execution as a multiple of those of a task."""
    with new_ledger(server) as ledger:
        ledger.declare("held", None)
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.held_blocks", ledger.dsn], cwd=ROOT,
            env=clean_environ(), stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    blocks: dict[str, list[float]] = json.loads(done.stdout)
    return round(median(blocks["executions"]) / median(blocks["tasks"]), 2)


def faults(found: Mapping[str, float], recorded: Mapping[str, float]) -> Sequence[str]:
    """Return a text for each ratio that is more than 1.5 times the recorded one, or unknown."""
    texts = []
    for name in sorted({*found, *recorded}):
        now, before = found.get(name), recorded.get(name)
        if now is None or before is None:
            texts.append(f"{name}: recorded {before}, found {now}; if that is right: {RERECORD}")
        elif now > FACTOR * before:
            texts.append(
                f"{name}: {now} is more than {FACTOR} times the recorded {before}; find out why, "
                f"and if it is worth its cost: {RERECORD}"
            )
    return texts


def recorded() -> dict[str, float]:
    found: dict[str, float] = json.loads(RECORDED.read_text("utf-8"))
    return found


def record(ratios: Mapping[str, float]) -> None:
    RECORDED.write_text(json.dumps(ratios, indent=2) + "\n", "utf-8")
