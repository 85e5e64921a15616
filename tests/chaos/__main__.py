"""Replicas, a foreign worker and clients for MINUTES, and everything that can happen to them.

    python -m tests.chaos MINUTES [--binaries DIR] [--seed N] [--only FAULT]…
    python -m tests.chaos --short [--binaries DIR] [--seed N]

`--short`: every fault once, most of them brief, for a minute; what follows another follows soon.
The verdict comes from the ledger and from lines outside it; exit 1 if a plan_time is missing or
doubled, executions overlapped, anything acknowledged is lost, or a process ended by itself.
"""

import argparse
import random
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import psycopg
from tabulate import tabulate

from tests.chaos.faults import (
    COPY_FAULTS,
    LISTEN_FAULTS,
    MEMBER_FAULTS,
    NETWORK_FAULTS,
    PROCESS_FAULTS,
    SERVER_FAULTS,
    Brief,
    Schedule,
    healthy,
    minute_long,
    outage,
)
from tests.chaos.fleet import trouble
from tests.chaos.jobs import ALERTS, SPANS
from tests.chaos.judge import (
    Verdict,
    judge_alerts,
    judge_by_verify,
    judge_ledger,
    judge_outside,
    judge_spans,
)
from tests.chaos.watch import flatness
from tests.chaos.world import World
from tests.cluster.support.clocks import monotonic_offset
from tests.cluster.support.marks import Mark, read

HANDFUL = 20
"""Lines a replica may log about one outage. Its loops, its heartbeats and its LISTEN each report
the loss of the connection, each change of the reason, and that it is back."""
KINDS = {
    "servers": (SERVER_FAULTS, (2.0, 6.0)),
    "processes": (PROCESS_FAULTS, (1.0, 4.0)),
    "listen": (LISTEN_FAULTS, (20.0, 60.0)),
    "copies": (COPY_FAULTS, (5.0, 20.0)),
}
"""The faults that happen beside each other, and the shortest and longest peace between two."""
SHORT_PEACE = (0.5, 1.0)
SHORT_SEED = 1094
"""One whose last faults leave little to settle."""
SHORT_AWAY = 7.0
"""Seconds without a database: longer than a lease."""
FLAT_AFTER_MINUTES = 10


def _at_once(world: World, sequences: Mapping[str, Callable[[], None]]) -> None:
    """Each in a thread of its own until all have ended; what one raises fails the run."""

    def go(name: str) -> None:
        try:
            sequences[name]()
        except Exception:  # noqa: BLE001 - a run whose faults broke off proves nothing
            world.failures.append(f"the faults of {name} broke off:\n{traceback.format_exc()}")
            world.note(world.failures[-1])  # what follows may end the run before its verdict

    threads = [threading.Thread(target=go, args=[name], name=name) for name in sequences]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(world: World, minutes: float, only: set[str] | None) -> None:
    """Faults for so long; then everything is healed, settled and drained."""
    world.begin()
    world.note("the fleet runs")
    end_at = time.monotonic() + 60 * minutes

    def draw(name: str) -> None:
        every, peace = KINDS[name]
        faults = {k: x for k, x in every.items() if only is None or k in only}
        schedule = Schedule(faults, world, f"{world.seed}/{name}")
        while time.monotonic() < end_at and len(schedule):
            schedule.step(peace)

    _at_once(world, {name: partial(draw, name) for name in KINDS})
    if only is None:
        minute_long(world, min(60.0, 60 * minutes / 10))
    _end(world)


def run_short(world: World) -> None:
    """Every fault once, those of servers, members and networks beside each other; then as `run`."""
    world.begin()
    world.note("the fleet runs")
    servers = dict(SERVER_FAULTS)
    del servers["database away 10 to 20 s"]
    servers[f"database away for {SHORT_AWAY:.0f} s"] = outage((SHORT_AWAY, SHORT_AWAY))
    schedules = {
        "servers": Schedule(servers, world, f"{world.seed}/servers", Brief),
        "members": Schedule(MEMBER_FAULTS, world, f"{world.seed}/members", Brief),
        "networks": Schedule(NETWORK_FAULTS, world, f"{world.seed}/networks"),
        "others": Schedule({**LISTEN_FAULTS, **COPY_FAULTS}, world, f"{world.seed}/others"),
    }

    def each(schedule: Schedule) -> None:
        for _ in range(len(schedule)):
            world.note(schedule.step(SHORT_PEACE))

    _at_once(world, {name: partial(each, schedule) for name, schedule in schedules.items()})
    _end(world)


def _end(world: World) -> None:
    world.note("the faults are over")
    healthy(world)
    world.settle()
    world.note("everything has settled")


def judge(world: World) -> Verdict:
    """Everything that is known about the run, held against the promise."""
    verdict = Verdict()
    marks = read(world.marks.read_text())
    worker = world.fleet.members["worker"].log.read_text("utf-8", "replace")
    succeeded = [int(x) for x in re.findall(r"^(\d+) .*: exit status 0, ok$", worker, re.MULTILINE)]
    with psycopg.connect(world.server.start(), autocommit=True) as c:
        judge_ledger(verdict, c)
        judge_outside(
            verdict, c, marks, offset=monotonic_offset(c),
            acknowledged=world.load.acknowledged, succeeded=succeeded, starved=world.starved,
        )  # fmt: skip
        judge_alerts(verdict, c, written(world, ALERTS))
        judge_spans(verdict, c, written(world, SPANS))
    judge_by_verify(verdict, world.server.start())
    assert world.onlookers is not None
    verdict.add("faults of the page and of metrics", world.onlookers.faults)
    verdict.add("running processes that ended by themselves", world.fleet.deaths)
    verdict.add("anything else", world.failures)
    verdict.add("log lines: more than a handful for an outage", [
        f"{name}: {lines} lines about {outage.what} of {outage.seconds:.0f} s"
        for outage in world.outages for name, lines in outage.lines.items() if lines > HANDFUL
    ])  # fmt: skip
    return verdict


def written(world: World, file: str) -> str:
    """Return what replicas have written to this file: nothing if they never did."""
    path = world.directory / file
    return path.read_text() if path.exists() else ""


def report(world: World, verdict: Verdict, minutes: float) -> bool:
    """Print it all; whether the promise held."""
    marks = read(world.marks.read_text())
    for what, why in world.not_done.items():
        print(f"left out: {what} ({why})")
    assert world.onlookers is not None
    _table(("fault", "times"), sorted(world.happened.items()))
    _table(("asked for", "times"), sorted(world.load.did.items()))
    _table(("requests", "times"), sorted(world.onlookers.did.items()))
    _table(("starts given up", "times"), world.fleet.false_starts.items())
    _table(("drains cut short, the database away", "times"), world.fleet.cut_short.items())
    _print_processes(world)
    flat = _print_outages_and_memory(world, marks, minutes)
    _table(("must be 0", "found"), verdict.found.items())
    for what, cases in verdict.details.items():
        for case in cases:
            print(f"  {what}: {case}")
    executions = world.sql("SELECT count(*), coalesce(sum(attempt), 0) FROM cronledger.executions")
    faults = sum(n for what, n in world.happened.items() if not what.startswith(" "))
    verify = verdict.found.get("verify: violations", 0)
    row = (faults, *executions[0], verdict.total("missing") + verify, verdict.total("doubled"),
           verdict.total("overlapping"), verdict.total("lost"), verdict.total("early"))  # fmt: skip
    _table(("faults", "executions", "attempts", "missing", "doubled", "overlapping", "lost",
            "early"), [row])  # fmt: skip
    return verdict.clean and flat


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], floats: str = "g") -> None:
    """Print the rows, if there are any."""
    if lines := list(rows):
        print(tabulate(lines, heads, floatfmt=floats), "\n")


def _print_processes(world: World) -> None:
    statuses = ("SUCCESS", "FAILED", "CANCELLED")
    rows = world.sql("SELECT job_name, count(*), sum(attempt),"
                     " count(*) FILTER (WHERE status = 'SUCCESS'),"
                     " count(*) FILTER (WHERE status = 'FAILED'),"
                     " count(*) FILTER (WHERE status = 'CANCELLED')"
                     " FROM cronledger.executions GROUP BY 1 ORDER BY 1")  # fmt: skip
    _table(("job", "executions", "attempts", *statuses), rows)
    said: Counter[str] = Counter()
    for name, member in world.fleet.members.items():
        if name != "worker":
            said.update(trouble(member.lines()))
    _table(("said by replicas", "times"), sorted(said.items()))


def _print_outages_and_memory(world: World, marks: list[Mark], minutes: float) -> bool:
    starts = sorted(m.at for m in marks if m.what == "start")
    rows = []
    for away in world.outages:
        gaps = [b - a for a, b in pairwise(starts) if a <= away.at + away.seconds and b > away.at]
        lines = ", ".join(f"{name} {n}" for name, n in sorted(away.lines.items()))
        rows.append((away.what, away.seconds, max(gaps, default=0.0), lines))
    _table(("away", "seconds", "no start for (s)", "log lines"), rows, ".1f")
    name, samples = world.watch.longest()
    if len(samples) < 8:
        return True
    found = flatness(samples)
    title = f"{name}, {samples[-1].at - samples[0].at:.0f} s"
    _table((title, "first quarter", "last quarter", "peak"), found, ".0f")
    return minutes < FLAT_AFTER_MINUTES or not any(x.grew for x in found)


def main() -> int:
    """Run, judge, print; answers the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("minutes", nargs="?", type=float, help="without --short; 10")
    parser.add_argument("--short", action="store_true", help="every fault once")
    parser.add_argument("--binaries", type=Path, help="bin directory of the servers")
    parser.add_argument("--seed", type=int, default=None, help="of the faults; none: any")
    every = [name for faults, _ in KINDS.values() for name in faults]
    parser.add_argument("--only", action="append", metavar="FAULT", choices=every,
                        help="nothing but this; again for more")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep logs and marks of the run")
    options = parser.parse_args()
    if options.short and (options.minutes is not None or options.only):
        parser.error("--short has its own length and faults: no MINUTES, no --only")
    minutes = 0.0 if options.short else 10.0 if options.minutes is None else options.minutes
    seed = SHORT_SEED if options.short else random.randrange(10**6)
    seed = seed if options.seed is None else options.seed
    length = "--short" if options.short else f"{minutes:g}"
    print(f"python -m tests.chaos {length} --seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        with World(directory, options.binaries, seed, short=options.short) as world:
            if options.short:
                run_short(world)
            else:
                run(world, minutes, set(options.only) if options.only else None)
            held = report(world, judge(world), minutes)
    finally:
        if options.keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
