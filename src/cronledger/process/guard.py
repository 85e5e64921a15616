"""A process that removes the embedded server of another process, if that was killed.

Run as `python -m cronledger.process.guard DIRECTORY`. Its standard input is a pipe, which ends once
the process that started it and the children of that are gone.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cronledger.embedded.server import remove
from cronledger.process.parent import wait_for_end


@contextmanager
def guarded(directory: Path) -> Iterator[int]:
    """Let a guard stop the server of `directory`, and remove it, if this process is killed.

    Yield a descriptor. The guard waits for the children that inherit it. At the end of the block
    the guard ends, and does nothing.
    """
    end, kept = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, directory],
        stdin=end, stdout=subprocess.DEVNULL, start_new_session=True,
    ) as guard:  # fmt: skip
        os.close(end)
        try:
            yield kept
        finally:
            guard.kill()
            os.close(kept)


if __name__ == "__main__":
    wait_for_end(0)
    remove(Path(sys.argv[1]))
