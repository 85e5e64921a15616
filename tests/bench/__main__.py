"""`make bench`: query plans and measurements on a server of their own, as JSON, tables and plots.

    python -m tests.bench [--short | --full] [--only NAME] [--rows N] [--schedules N] [--minutes N]
    python -m tests.bench --render FILE
    python -m tests.bench --add FILE

The short form compares ratios with the recorded ones, and has no peers. The full form writes
docs/performance.json, the figures of docs/performance.md, and the plots. Exit 1 if a measurement
failed, if `cronledger verify` found a violation, or if a ratio is more than 1.5 times the recorded
one. A target that is missed is no failure.
"""

import argparse
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import (
    burst,
    capture,
    dataset,
    enqueue,
    environment,
    guard,
    idle,
    large_ledger,
    lateness,
    peer_processes,
    pinned,
    plans,
    replicas,
    report,
    schedules,
    scheduling,
    startup,
    throughput,
)
from tests.bench.baseline import baseline
from tests.bench.bench import Bench
from tests.bench.forms import FULL, PLAIN, SHORT, Form
from tests.bench.product import ROOT
from tests.bench.server import durable_server

PLOTS = ROOT / "docs" / "plots"
PEERS = ROOT / ".peers" / "bin" / "python"


def measure_plans(bench: Bench) -> dict[str, Any]:
    """Return how many plans are within their limits. Raises RuntimeError if one is not."""
    size = dataset.FULL if bench.form.full_plans else dataset.SHORT
    verdicts = plans.measure_filled(bench.server, size)
    faulty = [verdict for verdict in verdicts if verdict.faults]
    if faulty:
        raise RuntimeError(f"plans beyond their limits:\n{plans.report(faulty)}")
    count = len(verdicts)
    return {"executions": size.executions + size.backlog, "plans": count, "within": count}


def measure_ratios(bench: Bench) -> dict[str, float]:
    found = guard.measure(bench.server)
    faults = guard.faults(found, guard.recorded())
    if faults:
        raise RuntimeError("\n".join(faults))
    return found


MEASUREMENTS: Mapping[str, Callable[[Bench], Any]] = {
    "plans": measure_plans, "startup": startup.measure, "scheduling": scheduling.measure,
    "schedules": schedules.measure, "pinned": pinned.measure, "lateness": lateness.measure,
    "burst": burst.measure, "analyzed_burst": burst.measure_analyzed,
    "throughput": throughput.measure, "enqueue": enqueue.measure, "capture": capture.measure,
    "replicas": replicas.measure, "large_ledger": large_ledger.measure, "idle": idle.measure,
    "ratios": measure_ratios,
}  # fmt: skip
ONLY_BY_NAME = {"throughput", "analyzed_burst", "schedules", "capture"}
"""Measurements that the short form leaves out unless they are asked for."""


def chosen(form: Form, only: list[str] | None) -> list[str]:
    """Return the names of the measurements of a form, or those of them that were asked for."""
    # The guard measures backlogs, too.
    left_out = without_size(form) | (ONLY_BY_NAME if form.name == SHORT.name else {"ratios"})
    return [name for name in MEASUREMENTS if (name in only if only else name not in left_out)]


def without_size(form: Form) -> set[str]:
    """Return the names of the measurements for which a form has no size."""
    sizes = {
        "schedules": form.loads, "large_ledger": form.schedules and form.rows,
        "scheduling": form.each_second, "pinned": form.pinned_minutes,
    }  # fmt: skip
    return {name for name, size in sizes.items() if size is None}


def run(bench: Bench, names: list[str], output: Path) -> dict[str, Any]:
    """Measure, and write the report to `output` after each measurement. Return it.

    `failures` of the report has the error of each measurement that failed; the others go on.
    """
    result: dict[str, Any] = {
        "form": bench.form.name,
        "began_at": datetime.fromtimestamp(time.clock_gettime(time.CLOCK_REALTIME), UTC)
        .isoformat(timespec="seconds"),
        **environment.describe(bench.server),
        "peers": peer_processes.versions(bench.peers) if bench.peers else {},
        "sizes": asdict(bench.form),
        "measurements": {},
        "runs": {},
        "failures": {},
    }  # fmt: skip
    for name in names:
        load, began = environment.load(), time.monotonic()
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            result["measurements"][name] = MEASUREMENTS[name](bench)
        except Exception as error:  # noqa: BLE001 - the others are worth their time
            result["failures"][name] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        seconds = round(time.monotonic() - began, 1)
        result["runs"][name] = {"load_before": load, "seconds": seconds}
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return result


def render(result: Mapping[str, Any]) -> None:
    """Write the figures of docs/performance.md and the plots."""
    from tests.bench import plots

    files = plots.draw(result["measurements"], PLOTS)
    names = [file.relative_to(ROOT / "docs").as_posix() for file in files]
    page = report.PAGE.read_text("utf-8")
    report.PAGE.write_text(report.replace_figures(page, report.markdown(result, names)), "utf-8")


def add(known: dict[str, Any], later: Mapping[str, Any]) -> None:
    """Let the measurements of a later run replace those of a report, which names both runs."""
    known["measurements"].update(later["measurements"])
    known["runs"].update(later["runs"])
    names = list(later["measurements"])
    earlier = [
        {**run, "names": [name for name in run["names"] if name not in names]}
        for run in known.get("later", [])
    ]
    again = {key: later[key] for key in ("began_at", "versions", "load_before")} | {"names": names}
    known["later"] = [run for run in [*earlier, again] if run["names"]]


def main() -> int:
    """Do what the arguments say, and return the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # stops the server
    if options.render:
        render(json.loads(options.render.read_text("utf-8")))
        return 0
    if options.add:
        known = json.loads(report.JSON.read_text("utf-8"))
        add(known, json.loads(options.add.read_text("utf-8")))
        report.JSON.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
        render(known)
        return 0
    form = SHORT if options.short else FULL if options.full else PLAIN
    form = replace(form, rows=options.rows or form.rows)
    if options.schedules:
        loads = {min(form.loads or FULL.loads or {}): (1,), options.schedules: (1, 4)}
        form = replace(form, schedules=options.schedules, loads=loads)
    if options.minutes:
        form = form.lasting(options.minutes)
    if options.idle_minutes:
        form = replace(form, idle_seconds=60 * options.idle_minutes)
    names = chosen(form, options.only)
    if unsized := without_size(form) & {*names}:
        sys.exit(f"The {form.name} form does not measure {', '.join(sorted(unsized))}: use --full")
    with ExitStack() as stack:
        server = stack.enter_context(durable_server(options.binaries))
        if options.record:
            guard.record(guard.measure(server))
            return 0
        compares = form.compares and {"throughput", "enqueue", "scheduling"} & {*names}
        peers = options.peers if compares else None
        queues = {"throughput", "enqueue"} & {*names}
        before = stack.enter_context(baseline()) if compares and queues else None
        bench = Bench(server, form, before, peers, options.profile)
        result = run(bench, names, options.output)
    print(report.text(result))
    for name, error in result["failures"].items():
        print(f"{name} failed: {error}", file=sys.stderr)
    if options.full and not result["failures"] and not options.only:
        render(result)
    return 1 if result["failures"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true")
    form.add_argument("--full", action="store_true")
    form.add_argument("--record", action="store_true", help="record the ratios of the guard")
    form.add_argument("--render", type=Path, metavar="FILE", help="write the documents from FILE")
    form.add_argument("--add", type=Path, metavar="FILE", help="replace those measurements of the "
                      "documents that FILE has")  # fmt: skip
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, metavar="NAME",
                        help=f"one of {', '.join(MEASUREMENTS)}; repeatable")  # fmt: skip
    parser.add_argument("--rows", type=int, help="executions of the large ledger")
    parser.add_argument("--schedules", type=int, help="schedules of the large ledgers")
    parser.add_argument(
        "--minutes",
        type=int,
        metavar="N",
        help="how long jobs fire each second "
        "in each measurement; beside an idle transaction, six times as long",
    )
    parser.add_argument("--idle-minutes", type=int, help="how long the idle replica is observed")
    parser.add_argument("--binaries", help="the bin directory of a PostgreSQL")
    parser.add_argument("--peers", type=Path, default=PEERS, help="the interpreter of the peers")
    parser.add_argument("--profile", type=Path, help="where to write cProfiles of the backlogs")
    parser.add_argument("--output", type=Path, help="where to write the JSON")
    options = parser.parse_args()
    complete = options.full and not options.only
    options.output = options.output or (report.JSON if complete else ROOT / "build" / "bench.json")
    return options


if __name__ == "__main__":
    sys.exit(main())
