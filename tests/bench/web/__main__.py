"""How long the pages take on a large ledger, and the memory of their process.

    python -m tests.bench.web [--short] [--schedules N] [--jobs N] [--executions N] [--repeats N]

For each page it prints the time until its end, and the average CPU time of the page's process and
the server, which depends less on what else the machine does.
The server and the ledger are removed at the end. Exit 1 if the p95 of a page exceeds 150 ms, if 200
open pages take more than 50 MB beyond those of one, or if an open page receives more than 100 kB a
minute. With at most 1,000 jobs also if the first request of a new process takes more than 1 s.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from tests.bench import environment
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.product import ROOT
from tests.bench.server import durable_server
from tests.bench.usage import Usage
from tests.bench.web import pages, viewers
from tests.bench.web.dataset import MOST_JOBS, Size, fill
from tests.cli.support.daemon import Start, starter
from tests.web.support.command import address

LIMIT_MS = 150.0
MEMORY_MB = 50.0
TRAFFIC_KB = 100.0
COLD_MS, COLD_JOBS = 1000.0, 1_000
COLD = ("/", "/jobs", "/forecast", "/verify")
VIEWERS = 200
SHORT = Size(2_000, 100_000)
FULL = Size(1_000_000, 50_000_000)


def run(options: argparse.Namespace, size: Size) -> dict[str, Any]:
    with durable_server(options.binaries) as server, new_ledger(server, verify=False) as ledger:
        began = time.monotonic()
        fill(ledger, size)
        report: dict[str, Any] = {
            **environment.describe(server),
            **ledger.one(
                "SELECT pg_database_size(current_database()) AS bytes,"
                " (SELECT count(*) FROM cronledger.schedules) AS schedules,"
                " (SELECT count(*) FROM cronledger.executions) AS executions"
            ),
            "seconds_to_fill": round(time.monotonic() - began),
        }
        with (
            TemporaryDirectory() as place,
            starter(Path(place), "web", CRONLEDGER_DATABASE_URL=ledger.dsn) as start,
        ):
            page = start("--listen", "127.0.0.1:0")
            url, pid = address(page), page.process.pid
            with httpx2.Client(base_url=url, timeout=pages.PATIENCE) as client:
                requested = pages.addresses(ledger, size, client)
                taken = pages.measure(client, requested, options.repeats, lambda: _cpu(ledger, pid))
            report["pages"] = {name: _summary(one) for name, one in taken.items()}
            seconds = 60 * options.minutes
            report["open_pages"] = {
                str(count): viewers.watched(url, pid, count, seconds)._asdict()
                for count in (1, VIEWERS)
            }
            report["cold"] = {path: _cold(start, path) for path in COLD}
            report["jobs"] = size.jobs
    return report


def _cold(start: Start, path: str) -> float:
    """Return the milliseconds of the first request of a new process."""
    page = start("--listen", "127.0.0.1:0")
    with httpx2.Client(base_url=address(page), timeout=pages.PATIENCE) as client:
        began = time.monotonic()
        client.get(path).raise_for_status()
        taken = 1000 * (time.monotonic() - began)
    page.signal(signal.SIGTERM)
    page.end()
    return round(taken, 1)


def _cpu(ledger: Ledger, pid: int) -> float:
    usage = Usage.until_now([pid], ledger.connection)
    return usage.client + usage.server


def _summary(taken: list[pages.Taken]) -> dict[str, float]:
    ms = [one.wall for one in taken]
    return {
        "p50": round(pages.quantile(ms, 0.5), 1), "p95": round(pages.quantile(ms, 0.95), 1),
        "max": round(max(ms), 1), "cpu": round(mean(one.cpu for one in taken), 1),
    }  # fmt: skip


def text(report: Mapping[str, Any]) -> str:
    lines = [
        f"{report['schedules']:,} schedules, {report['executions']:,} executions,"
        f" {report['bytes'] / 2**30:.1f} GB, filled in {report['seconds_to_fill']} s",
        f"{'page':32} {'p50':>8} {'p95':>8} {'max':>8} {'CPU':>8} ms",
    ]
    for name, one in report["pages"].items():
        lines.append(
            f"{name:32} {one['p50']:8.1f} {one['p95']:8.1f} {one['max']:8.1f} {one['cpu']:8.1f}"
        )
    for count, one in report["open_pages"].items():
        lines.append(
            f"with {count} open pages: {one['half']:.1f} MB, then {one['end']:.1f} MB;"
            f" each receives {one['kb_a_minute']:.1f} kB a minute"
        )
    lines += [f"first request, {path}: {ms:.1f} ms" for path, ms in report["cold"].items()]
    return "\n".join(lines)


def faults(report: Mapping[str, Any]) -> list[str]:
    """Return what is beyond its limit."""
    found = [
        f"{name}: the p95 of {one['p95']} ms exceeds {LIMIT_MS:.0f} ms"
        for name, one in report["pages"].items()
        if one["p95"] > LIMIT_MS
    ]
    of_one, of_many = report["open_pages"]["1"], report["open_pages"][str(VIEWERS)]
    grown = of_many["end"] - of_one["end"]
    if of_one["kb_a_minute"] > TRAFFIC_KB:
        found.append(
            f"an open page receives {of_one['kb_a_minute']:.0f} kB a minute,"
            f" which is more than {TRAFFIC_KB:.0f} kB"
        )
    found += [
        f"the first request of {path} takes {ms:.0f} ms, which is more than {COLD_MS:.0f} ms"
        for path, ms in report["cold"].items()
        if ms > COLD_MS and report["jobs"] <= COLD_JOBS
    ]
    if grown > MEMORY_MB:
        found.append(
            f"{VIEWERS} open pages take {grown:.0f} MB more than one,"
            f" which is more than {MEMORY_MB:.0f} MB"
        )
    return found


def main() -> int:
    """Do what the arguments say, and return the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # stops the server
    form = SHORT if options.short else FULL
    size = Size(
        options.schedules or form.schedules, options.executions or form.executions,
        options.jobs or MOST_JOBS,
    )  # fmt: skip
    report = run(options, size)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(text(report))
    found = faults(report)
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="2,000 schedules, 100,000 executions")
    parser.add_argument("--schedules", type=int, help="about so many [default: 1,000,000]")
    parser.add_argument("--jobs", type=int, help="at most so many [default: 10,000]")
    parser.add_argument("--executions", type=int, help="about so many [default: 50,000,000]")
    parser.add_argument("--repeats", type=int, help="requests of each page [default: 40]")
    parser.add_argument("--minutes", type=float, help="with open pages, each [default: 5]")
    parser.add_argument("--binaries", help="the bin directory of a PostgreSQL")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench-web.json",
                        help="where to write the JSON")  # fmt: skip
    options = parser.parse_args()
    options.repeats = options.repeats or (10 if options.short else 40)
    options.minutes = options.minutes or (0.25 if options.short else 5)
    return options


if __name__ == "__main__":
    sys.exit(main())
