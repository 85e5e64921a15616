"""Run the command line with bad input, and report each traceback, hang and secret that it prints.

    python -m tests.fuzz --minutes N [--seed0 S]     seeds from S on for N minutes
    python -m tests.fuzz --seed S [--commands N]     one seed, to replay a finding

A seed is a fresh database with odd rows, a directory with odd files, and a number of commands. The
commands and their parameters are read from click, so that a new one is covered by default.
"""

import argparse
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

from tests.database import Databases, server
from tests.fuzz.arguments import Calls
from tests.fuzz.calls import Finding, run
from tests.fuzz.world import World

COMMANDS = 150
SHOWN = 6_000


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, help="run seeds for so long")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--seed0", type=int, default=0, help="the first one")
    parser.add_argument("--commands", type=int, default=COMMANDS, help="commands of a seed")
    given = parser.parse_args()
    if given.minutes is None and given.seed is None:
        parser.error("name --minutes N or --seed S")
    end = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    totals: Counter[str] = Counter()
    findings = 0
    with (
        tempfile.TemporaryDirectory(prefix="cronledger-fuzz-") as directory,
        server(Path(directory)) as dsn,
        Databases(dsn, uuid.uuid4().hex) as databases,
    ):
        first = seed = given.seed if given.seed is not None else given.seed0
        findings += _seed(seed, given.commands, databases, totals, end)
        while given.seed is None and end is not None and time.monotonic() < end:
            seed += 1
            findings += _seed(seed, given.commands, databases, totals, end)
    per_code = ", ".join(f"{totals[key]} with {key}" for key in sorted(totals))
    print(
        f"seeds {first} to {seed}: {sum(totals.values())} commands ({per_code}), "
        f"{findings} findings"
    )
    return 1 if findings else 0


def _seed(
    seed: int, commands: int, databases: Databases, totals: Counter[str], end: float | None
) -> int:
    """Run one seed, print its findings as they come, and return their number."""
    rng = random.Random(seed)
    name = databases.create(databases.template())
    bare = databases.create()
    findings = 0
    try:
        with tempfile.TemporaryDirectory(prefix="cronledger-fuzz-") as directory:
            world = World(Path(directory), databases.url(name), databases.url(bare), rng)
            calls = Calls(world, rng)
            for number in range(1, commands + 1):
                if end is not None and time.monotonic() >= end:
                    break
                call = calls.next()
                ended = run(call, world)
                totals[f"exit {ended.code}"] += 1
                for finding in ended.findings:
                    findings += 1
                    _print(seed, number, finding)
    finally:
        databases.drop(name)
        databases.drop(bare)
    return findings


def _print(seed: int, number: int, finding: Finding) -> None:
    print(f"\n== seed {seed}, command {number}: {finding.what}")
    print(f"   {finding.call}")
    print(finding.output[-SHOWN:].encode("ascii", "backslashreplace").decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
