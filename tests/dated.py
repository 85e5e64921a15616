"""Run the tests as if the run began at another instant: `python -m tests.dated INSTANT [pytest …]`.

The host clock of every process, the database servers included, is off by one fixed number of
seconds, so that the run begins at INSTANT (UTC). CLOCK_MONOTONIC is not changed.
The instants of ALL lie at the ends of a week, a year and a month, and at a change to summer time.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster.support.clocks import FakeClock, forget_dead
from tests.database import dated_suffix, fast_directory

ALL = (
    "2026-11-22T23:59:30",  # a Sunday; the partitions of the ledger are weeks from Monday on
    "2026-11-23T00:00:05",
    "2026-12-31T23:59:50",
    "2027-03-28T00:59:50",  # Europe changes to summer time at 01:00
    "2028-02-29T23:59:50",
)


def main() -> int:
    """Return the greatest exit code of the runs of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tests.dated", description=__doc__)
    parser.add_argument("instant", help="such as 2026-12-31T23:59:50, or `all`")
    given, pytest_arguments = parser.parse_known_args()
    instants = ALL if given.instant == "all" else (given.instant,)
    return max(_run(instant, pytest_arguments) for instant in instants)


def _run(instant: str, arguments: list[str]) -> int:
    start = datetime.fromisoformat(instant).replace(tzinfo=UTC)
    print(f"tests at {start.isoformat()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="cronledger-dated-") as directory:
        now = datetime.now(UTC)  # noqa: TID251 - the host's clock is what this run replaces
        clock = FakeClock(Path(directory) / "offset", (start - now).total_seconds())
        suffix = dated_suffix(clock.offset)
        environ = os.environ | clock.environ | {"FAKETIME_CACHE_DURATION": "86400"}
        try:
            return subprocess.call([sys.executable, "-m", "pytest", *arguments], env=environ)
        finally:
            forget_dead()
            for server in fast_directory().glob(f"cronledger-tests-*/server-*{suffix}"):
                shutil.rmtree(server, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
