"""The end of a child process whose parent is gone.

Standard input is a pipe that only the parent keeps open, so the kernel ends it with the parent,
whatever ended that. The supervisor of commands notices the death of its runner in the same way.
"""

import os
import signal
import time
from threading import Thread

GRACE_SECONDS = 10.0
"""After SIGTERM, the process may take this long. It may hang, and so be why the parent was killed.
"""


def end_with_parent() -> None:
    """Let this process end when its standard input ends. Nothing else can read that from now on."""
    watched = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    Thread(target=_end, args=(watched,), name="cronledger-parent", daemon=True).start()


def wait_for_end(fd: int) -> None:
    """Return once nobody can write to the other end of a pipe any more."""
    while os.read(fd, 4096):
        pass


def _end(watched: int) -> None:
    wait_for_end(watched)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
