"""Whether a seed does the same each time: each is run in two processes that hash differently, on
two databases that have seen other seeds before.

`python -m tests.simulation.replay [--seeds N] [--seed0 N]` prints where they part.
"""

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.simulation.__main__ import fresh_database
from tests.simulation.support.cluster import LOGGED
from tests.simulation.support.run import simulate

OWN = (LOGGED, "has oid")
"""In lines that are of one database, or tell more than happened in it."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DATABASE = re.compile(r"cronledger_test_\w+")
BEFORE = 6
"""Lines printed of what was still the same."""


def record(seeds: Sequence[int], directory: Path) -> None:
    """The trace of each seed, in a file of its own."""
    with fresh_database() as database:
        for seed in seeds:
            lines: list[str] = []
            simulate(seed, database, lines.append)
            kept = (x for x in lines if not any(own in x for own in OWN))
            (directory / str(seed)).write_text("\n".join(impersonal(kept)))


def impersonal(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines with a number for each UUID (the database draws some) in the order in which
    they appear, and without the name of the database."""
    numbers: dict[str, str] = {}
    for line in lines:
        plain = _DATABASE.sub("the database", line)
        yield _UUID.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), plain)


def recorded(
    seeds: Sequence[int], directory: Path, hashing: int, dsn: str | None
) -> "subprocess.Popen[bytes]":
    """A process that does it, with sets in an order of its own."""
    directory.mkdir()
    command = [sys.executable, "-m", "tests.simulation.replay", "--into", str(directory)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hashing)}
    if dsn is not None:
        environment["CRONLEDGER_TEST_DATABASE_URL"] = dsn
    return subprocess.Popen([*command, *map(str, seeds)], env=environment)


def parted(one: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    """What is printed of two traces that differ; nothing where they are the same."""
    for number, (left, right) in enumerate(itertools.zip_longest(one, other)):
        if left != right:
            yield from (f"    {line}" for line in one[max(0, number - BEFORE) : number])
            yield from (f"  1 {line}" for line in one[number : number + 3])
            yield from (f"  2 {line}" for line in other[number : number + 3])
            return


def differences(seeds: Sequence[int], dsn: str | None = None) -> dict[int, list[str]]:
    """Where each of these seeds that has two ways to go takes another; on the server of `dsn`, or
    the tests' own. Raises subprocess.CalledProcessError where a process fails."""
    with tempfile.TemporaryDirectory() as name:
        ways = [Path(name) / "1", Path(name) / "2"]
        processes = [recorded(seeds, ways[0], 1, dsn), recorded(seeds[::-1], ways[1], 2, dsn)]
        for process in processes:
            if process.wait() != 0:
                raise subprocess.CalledProcessError(process.returncode, process.args)
        found = {
            seed: list(parted(*((way / str(seed)).read_text().split("\n") for way in ways)))
            for seed in seeds
        }
    return {seed: lines for seed, lines in found.items() if lines}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.replay", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="so many")
    parser.add_argument("--seed0", type=int, default=0, help="the first one")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("some", nargs="*", type=int, help="just these")
    asked = parser.parse_args()
    seeds = asked.some or range(asked.seed0, asked.seed0 + asked.seeds)
    if asked.into is not None:
        record(seeds, asked.into)
        return 0
    found = differences(seeds)
    for seed, lines in found.items():
        print(f"seed {seed} has two ways to go:", *lines, sep="\n")
    print(f"{len(seeds)} seeds run twice, {len(found)} went two ways {list(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
