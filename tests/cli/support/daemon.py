"""A command that runs until a signal, such as `run` or `dev`."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.processes import CRONLEDGER


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

    def until(self, met: Callable[[], object], seconds: float = 90) -> None:
        """Return once `met`; fail when the process ends before, or after so long."""
        deadline = time.monotonic() + seconds
        while not met():
            assert self.process.poll() is None, self.err
            assert time.monotonic() < deadline, self.err
            time.sleep(0.02)

    def until_event(self, name: str) -> dict[str, Any]:
        self.until(lambda: any(event["event"] == name for event in self.events()))
        return next(event for event in self.events() if event["event"] == name)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 90) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it has not ended: {self.err}")
