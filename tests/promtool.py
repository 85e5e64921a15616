"""`promtool`, which checks the text of metrics."""

import shutil
import subprocess

import pytest

PROGRAM = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROGRAM is None, reason="promtool is not installed; install the Debian package prometheus"
)


def complaints(text: bytes) -> str:
    """Return what `promtool check metrics` prints about this text; nothing if it is valid."""
    assert PROGRAM is not None
    done = subprocess.run(
        [PROGRAM, "check", "metrics"], input=text, capture_output=True, check=False, timeout=90
    )
    printed = (done.stdout + done.stderr).decode()
    return printed or ("" if done.returncode == 0 else f"exit status {done.returncode}")
