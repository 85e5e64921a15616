"""What figures depend on: versions, the machine, the settings of the server, the load before."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.product import ROOT
from tests.bench.server import Server


def describe(server: Server) -> dict[str, Any]:
    settings = server.settings()
    return {
        "versions": {
            "cronledger": commit(),
            "postgresql": settings.pop("server_version"),
            "python": platform.python_version(),
            "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        },
        "cores": os.cpu_count(),
        "processor": _processor(),
        "load_before": load(),
        "settings": settings,
    }


def load() -> float:
    """Return the average number of processes that wanted a core in the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> str:
    """Return the commit of this checkout, with a + if it was changed since; empty if unknown."""
    try:
        shown = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""
    return shown.stdout.strip()


def _processor() -> str:
    """Return the model of the processor, or its architecture where the kernel does not name it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
