"""Run the tests as if the run began at another instant: `python -m tests.dated INSTANT [pytest …]`.

The host clock of every process, the database servers included, is off by one fixed number of
seconds, so that the run begins at INSTANT (UTC). CLOCK_MONOTONIC is not changed.
INSTANT is an instant such as 2026-12-31T23:59:50, or `all` for each instant of ALL in turn, or
`drawn` for one instant of the next two years that the hash of the commit decides.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.cluster.support.clocks import FakeClock, forget_dead
from tests.database import dated_suffix, fast_directory

# Each day of the week, the first and the last day of a month, both changes of the clocks of Europe
# and a leap day. The partitions of the ledger are weeks from Monday on.
ALL = (
    "2026-11-22T23:59:30",  # a Sunday
    "2026-11-23T00:00:05",  # a Monday
    "2026-12-01T00:00:05",  # a Tuesday, when the oldest partition is newest; the first of a month
    "2027-02-03T09:12:00",  # a Wednesday
    "2026-12-31T23:59:50",  # a Thursday; the last day of a month and of a year
    "2027-01-15T17:40:00",  # a Friday
    "2027-08-21T12:00:00",  # a Saturday
    "2027-03-28T00:59:50",  # Europe changes to summer time at 01:00
    "2027-10-31T00:59:50",  # Europe changes back at 01:00
    "2028-02-29T23:59:50",
)
YEARS = timedelta(days=2 * 365)


def main() -> int:
    """Return the greatest exit code of the runs of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tests.dated", description=__doc__)
    parser.add_argument("instant", help="such as 2026-12-31T23:59:50, `all` or `drawn`")
    given, pytest_arguments = parser.parse_known_args()
    now = datetime.now(UTC)  # noqa: TID251 - the host's clock is what these runs replace
    return max(_run(start, now, pytest_arguments) for start in instants(given.instant, now))


def instants(given: str, now: datetime) -> list[datetime]:
    """Return the instants that the argument `given` names.

    Raises ValueError if it is neither an instant nor one of the two words.
    """
    if given == "drawn":
        commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
        return [drawn(commit, now)]
    names = ALL if given == "all" else (given,)
    return [datetime.fromisoformat(name).replace(tzinfo=UTC) for name in names]


def drawn(commit: str, now: datetime) -> datetime:
    """Return a whole second of the two years after `now`, the same for the same arguments."""
    seconds = random.Random(commit).randrange(int(YEARS.total_seconds()))
    return now.replace(microsecond=0) + timedelta(seconds=seconds)


def _run(start: datetime, now: datetime, arguments: list[str]) -> int:
    name = start.replace(tzinfo=None).isoformat()
    print(
        f"Tests as if it were {start:%A} {name} UTC; repeat: make dates INSTANT={name}", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="cronledger-dated-") as directory:
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
