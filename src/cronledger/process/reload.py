"""A replica as a child process, which is replaced when the files of its jobs change."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Self

from cronledger.rules.problems import Exit

# Without -P, a file of the working directory could replace a module of the standard library.
PROGRAM = (
    sys.executable, "-P", "-c",
    "from cronledger.process.parent import end_with_parent; end_with_parent();"
    "from cronledger.cli import main; main()",
)  # fmt: skip
"""The command line in another process, which ends with this one."""
POLL_MS = 200
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Children:
    """A replica in a child process, and commands in others. A context manager.

    While it is open, each signal that would end this process goes to the children, as SIGTERM: the
    first one drains the replica, the second one stops it. A second Ctrl-C goes to them as SIGINT,
    because it counts at once. `stopped` is set by the first signal. Children have sessions of their
    own, so that a Ctrl-C on the terminal does not reach them twice. If this process is killed, they
    end as well.
    `environ` is their environment, and they inherit the descriptor `inherited`.
    """

    def __init__(self, inherited: int) -> None:
        self.stopped = Event()
        self.environ = dict(os.environ)
        self._inherited = inherited
        self._end, self._kept = os.pipe()
        self._replica: subprocess.Popen[str] | None = None
        self._command: subprocess.Popen[str] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._end)
        os.close(self._kept)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        again = self.stopped.is_set() and number == signal.SIGINT
        self.stopped.set()
        for child in (self._replica, self._command):
            if child is not None:  # nothing happens if it has ended
                child.send_signal(signal.SIGINT if again else signal.SIGTERM)

    def call(self, *arguments: str) -> str:
        """Run a command to its end, and return what it prints on standard output."""
        self._command = self._started(arguments, subprocess.PIPE)
        if self.stopped.is_set():
            self._command.terminate()  # the signal came before there was a child
        printed, _ = self._command.communicate()
        self._command = None
        return printed

    def replace_replica(self, *arguments: str) -> None:
        """Drain the replica, wait for its end, and start another one with these arguments."""
        self.end()
        self._replica = self._started(arguments, None)
        if self.stopped.is_set():
            self._replica.terminate()

    def _started(self, arguments: Sequence[str], stdout: int | None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *arguments],
            env=self.environ, stdin=self._end, stdout=stdout, text=True, errors="replace",
            start_new_session=True, pass_fds=(self._inherited,),
        )  # fmt: skip

    @property
    def running(self) -> bool:
        """Whether a replica was started that is not known to have ended."""
        return self._replica is not None

    def ended(self) -> int | None:
        """Return the exit code of a replica that ended by itself, once; otherwise None."""
        if self._replica is None or (code := self._replica.poll()) is None:
            return None
        self._replica = None
        return self._exit_code(code)

    def wait(self) -> int:
        """Wait for the end of the replica, and return its exit code; 0 without one."""
        if self._replica is None:
            return Exit.FINE
        code = self._replica.wait()
        self._replica = None
        return self._exit_code(code)

    def _exit_code(self, code: int) -> int:
        """Return an exit code as shells do: 128 + the number of the signal that ended a process."""
        if code == -signal.SIGTERM and self.stopped.is_set():
            return Exit.FINE  # it was still starting, so it had nothing to drain
        return code if code >= 0 else 128 - code

    def end(self) -> int:
        """Drain the replica, wait for its end, and return its exit code; 0 without one."""
        if self._replica is not None and not self.stopped.is_set():
            self._replica.terminate()  # a signal has terminated it otherwise
        return self.wait()


def changes(file: Path, stopped: Event) -> Iterator[list[str]]:
    """Yield the files that changed since the last list, which may be none, until `stopped` is set.

    They are `file`, and the Python and iCalendar files below the working directory, without the
    directories that this user may not read. No change after the first list is missed. Needs the
    library watchfiles.
    """
    from watchfiles import Change, DefaultFilter, watch  # noqa: PLC0415 - an extra

    here, watched = Path.cwd(), str(file.absolute())

    class Sources(DefaultFilter):
        def __call__(self, change: Change, path: str) -> bool:
            is_source = path.endswith((".py", ".ics")) or path == watched
            return is_source and super().__call__(change, path)

    roots = {here} if file.absolute().is_relative_to(here) else {here, file.absolute().parent}
    for found in watch(
        *roots, watch_filter=Sources(), stop_event=stopped, rust_timeout=POLL_MS,
        yield_on_timeout=True, raise_interrupt=False, ignore_permission_denied=True,
    ):  # fmt: skip
        yield sorted({os.path.relpath(path) for _, path in found})


Check = Callable[[], bool]
Report = Callable[[str], None]


def run_and_reload(
    children: Children, replica: Sequence[str], check: Check, file: Path, report: Report
) -> int:
    """Run the command `replica`, and again after each change that `check` accepts.

    The replica keeps running while a change is not accepted. Return the exit code of the last one
    once `children` is stopped.
    """
    first = True
    for changed in changes(file, children.stopped):
        if changed:
            report(f"{', '.join(changed)} changed")
        if changed or first:
            first = False
            if check():
                children.replace_replica(*replica)
            elif not children.stopped.is_set():
                state = "the replica keeps its jobs" if children.running else "no replica runs"
                report(f"{state} until the next change")
        elif (code := children.ended()) is not None:
            report(f"the replica ended with exit code {code}; the next change starts another")
    return children.wait()
