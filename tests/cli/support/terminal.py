"""The command line on a pseudo-terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

PROGRAM = str(Path(sys.executable).parent / "cronledger")


def on_terminal(
    *arguments: str, columns: int = 80, environ: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return what a terminal of so many columns receives from the command."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "LINES")}
    process = subprocess.Popen(
        [PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**variables, "TERM": "xterm", **environ},
    )  # fmt: skip
    os.close(theirs)
    received = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            break
        received += part
    os.close(ours)
    process.wait()
    return received.decode().replace("\r\n", "\n")
