"""Reading what people name as a file: never for ever, and never more than fits."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from cronledger.rules.problems import RefusedError

MOST_BYTES = 16 * 1024 * 1024


def read_file(path: Path) -> bytes:
    """Return what the regular file at `path` holds.

    Raises OSError, and RefusedError for anything else (a FIFO or a device may never end) and for
    more than MOST_BYTES.
    """
    # Not blocking: opening a FIFO would wait for whoever writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RefusedError("is not a regular file", "name a file")
        return read_stream(file)


def read_stream(stream: BinaryIO) -> bytes:
    """Return what `stream` holds. Raises OSError, and RefusedError for more than MOST_BYTES."""
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise RefusedError(
            f"has more than {MOST_BYTES // 1024**2} MiB", "name another file, or write less into it"
        )
    return data
