"""Read the files that people name, without blocking and without reading too much."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from cronledger.rules.problems import RefusedError

MOST_BYTES = 16 * 1024 * 1024


def read_file(path: Path) -> bytes:
    """Return the content of the regular file at `path`.

    Raises OSError. Raises RefusedError for any other kind of file, because a FIFO or a device may
    never end, and for more than MOST_BYTES.
    """
    # Non-blocking, because opening a FIFO would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RefusedError("is not a regular file", "use a regular file")
        return read_stream(file)


def read_stream(stream: BinaryIO) -> bytes:
    """Return the content of `stream`. Raises OSError, and RefusedError beyond MOST_BYTES."""
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise RefusedError(f"is larger than {MOST_BYTES // 1024**2} MiB", "use a smaller file")
    return data
