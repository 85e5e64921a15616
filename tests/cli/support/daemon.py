"""A command that runs until a signal, such as `run` or `dev`."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.processes import CRONLEDGER
from tests.waiting import PATIENCE, until

T = TypeVar("T")


class Run:
    """A command as a process of its own; its standard error is read from a file."""

    def __init__(
        self,
        directory: Path,
        environment: dict[str, str],
        *arguments: str,
        program: Sequence[str] = CRONLEDGER,
    ) -> None:
        self._err = directory / "stderr"
        self._out = directory / "stdout"
        with self._err.open("w") as err, self._out.open("w") as out:
            self.process = subprocess.Popen(
                [*program, *arguments],
                cwd=directory, env=environment, stdout=out, stderr=err,
            )  # fmt: skip

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def events(self) -> list[dict[str, Any]]:
        whole = self.err.split("\n")[:-1]  # the last line may be written just now
        return [json.loads(line) for line in whole if line.startswith("{")]

    def until(self, met: Callable[[], T | None]) -> T:
        """Return what `met` returns as soon as it is true; fail when the process ends before."""

        def look() -> T | None:
            ended = self.process.poll() is not None  # before the look, which is then the last one
            found = met()
            assert found or not ended, "it has ended"
            return found

        try:
            return until("the condition of a process", look)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.err}") from None

    def until_event(self, name: str) -> dict[str, Any]:
        return self.until(lambda: next((x for x in self.events() if x["event"] == name), None))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = PATIENCE) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it has not ended: {self.err}")


Start = Callable[..., Run]


@contextmanager
def starter(
    directory: Path, command: str, ending: signal.Signals = signal.SIGKILL, **variables: str
) -> Iterator[Start]:
    """Yield a function that starts the command in the directory, with further variables.

    What still runs at the end gets the signal `ending`.
    """
    started: list[Run] = []

    def start(*arguments: str, **more: str) -> Run:
        started.append(Run(directory, os.environ | variables | more, command, *arguments))
        return started[-1]

    try:
        yield start
    finally:
        for run in started:
            if run.process.poll() is None:
                run.signal(ending)
                run.end()
