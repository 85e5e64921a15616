"""The time until `cronledger --help` has printed and ended."""

import subprocess
import time
from statistics import median
from typing import Any

from tests.bench.bench import Bench
from tests.bench.product import OURS

RUNS = 10


def measure(_: Bench) -> dict[str, Any]:
    """Return milliseconds: of `--help`, and of the interpreter alone as its floor."""
    return {
        "help_ms": _median_ms([str(OURS.python.parent / "cronledger"), "--help"]),
        "floor_ms": _median_ms([str(OURS.python), "-c", ""]),
    }


def _median_ms(command: list[str]) -> float:
    return round(median(_ms(command) for _ in range(RUNS)), 1)


def _ms(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return 1000 * (time.monotonic() - began)
