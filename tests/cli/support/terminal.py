"""The command line on a pseudo-terminal."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import MappingProxyType
from unittest import mock

import pytest

from cronledger.cli import main


def on_terminal(
    *arguments: str, columns: int = 80, environ: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return what a terminal of so many columns receives from the command.

    The command runs in this process, whose standard streams are the terminal meanwhile.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    received = bytearray()
    reader = threading.Thread(target=_read, args=(ours, received))
    # No other thread may run while variables change, and none but these: libfaketime reads them.
    with pytest.MonkeyPatch.context() as variables:
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            variables.delenv(name, raising=False)
        for name, value in {"TERM": "xterm", **environ}.items():
            variables.setenv(name, value)
        reader.start()
        try:
            with _standard_streams(theirs), suppress(SystemExit):
                main(arguments, prog_name="cronledger")
        finally:
            os.close(theirs)  # the reader ends
            reader.join()
            os.close(ours)
    return received.decode().replace("\r\n", "\n")


def _read(terminal: int, received: bytearray) -> None:
    with suppress(OSError):  # the other end is closed
        while part := os.read(terminal, 65_536):
            received += part


@contextmanager
def _standard_streams(terminal: int) -> Iterator[None]:
    """Make descriptors 0 to 2, and the streams of Python, lead to the terminal."""
    with ExitStack() as stack:
        for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
            saved = os.dup(number)
            stack.callback(os.close, saved)
            os.dup2(terminal, number)
            stack.callback(os.dup2, saved, number)
            stream = stack.enter_context(open(number, mode, encoding="utf-8", closefd=False))
            stack.enter_context(mock.patch.object(sys, name, stream))
        yield
