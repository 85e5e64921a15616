"""The command of the cluster tests: marks its start, then a life sign every few milliseconds.

Arguments: seconds to live in the first attempt (later ones end at once); `deaf` to ignore SIGTERM.
Run by path with the standard library alone.
"""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from marks import mark  # type: ignore[import-not-found]

ENV = os.environ


def sign(what: str) -> None:
    mark(
        what,
        ENV["CRONLEDGER_JOB"],
        ENV["CRONLEDGER_SCOPE_ID"],
        int(ENV["CRONLEDGER_ATTEMPT"]),
        int(ENV["CRONLEDGER_EXECUTION_ID"]),
        ENV["CRONLEDGER_PLAN_TIME"],
    )


if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sign("start")
end_at = time.monotonic() + (float(sys.argv[1]) if ENV["CRONLEDGER_ATTEMPT"] == "1" else 0)
while time.monotonic() < end_at:
    sign("alive")
    time.sleep(0.02)
sign("end")
