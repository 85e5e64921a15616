"""Run a command as its caller would: same streams, signals passed on, same exit status."""

import os
import signal
from collections.abc import Sequence

FORWARDED = frozenset({
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGWINCH, signal.SIGCONT,
})  # fmt: skip
WAITED = FORWARDED | {signal.SIGCHLD}
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_DEFAULTS = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that Python ignores, and that the command must not inherit as ignored."""


class Command:
    """A running command. Start it before other threads exist, so that all of them block signals."""

    def __init__(self, words: Sequence[str]) -> None:
        """Start the command. Raises OSError if that is impossible."""
        # The kernel discards the exit status of a child whose parent ignores SIGCHLD, as a caller
        # may. The command then starts with the default as well, which is what programs expect.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
        try:
            self._pid = os.posix_spawnp(
                words[0], list(words), os.environ, setsigmask=self._before, setsigdef=_DEFAULTS
            )
        except OSError:
            self.release()
            raise

    def wait(self) -> int:
        """Pass signals on until the command has ended. Return its exit status, as a shell does."""
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return 128 - code if code < 0 else code
            found = signal.sigtimedwait(WAITED, 1.0)
            # The kernel sends the signals of a terminal to the whole group, so the command has it.
            if found is not None and found.si_signo in FORWARDED and found.si_code <= 0:
                os.kill(self._pid, found.si_signo)

    def release(self) -> None:
        """Discard the signals that came after the command had ended, and accept signals again."""
        while signal.sigtimedwait(WAITED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def status_of(error: OSError) -> int:
    """Return the exit status of a shell for a command that cannot be started."""
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
