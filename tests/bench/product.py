"""A checkout of cronledger and its command line: this one, or that of an earlier commit."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import clean_environ

ROOT = Path(__file__).parents[2]
_READY = "ready\n"


class NotCleanError(RuntimeError):
    """`cronledger verify` found violations in what a measurement wrote, so its figures are void."""


@dataclass(frozen=True, slots=True)
class Product:
    """`directory` of the checkout, and the interpreter of the environment that has it installed."""

    directory: Path
    python: Path

    def migrate(self, dsn: str) -> None:
        self._command(dsn, "migrate").check_returncode()

    def verify(self, dsn: str, jobs: Sequence[str] = ()) -> None:
        """Run `cronledger verify`, for `jobs` or for all. Raises NotCleanError with its output."""
        for selection in [[job] for job in jobs] or [[]]:
            done = self._command(dsn, "verify", *selection)
            if done.returncode:
                raise NotCleanError(f"exit {done.returncode}: {done.stdout[-2000:]}{done.stderr}")

    @contextmanager
    def replica(self, dsn: str, slots: int, *options: str) -> Iterator[int]:
        """Run a replica of the queue `default` with handlers that do nothing. Yields its pid.

        `options`: further arguments of `tests.bench.runner`. The replica is ready when the block
        begins, and drained when it has ended.
        """
        command = [str(self.python), "-m", "tests.bench.runner", dsn, str(slots), *options]
        with subprocess.Popen(
            command, cwd=self.directory, env=clean_environ(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != _READY:
                raise RuntimeError("the replica did not start")
            try:
                yield process.pid
            finally:
                process.stdin.close()
                if process.wait(60) != 0:
                    raise RuntimeError(f"the replica ended with {process.returncode}")

    def _command(self, dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), "-c", "from cronledger.cli import main; main()", *arguments]
        environment = clean_environ() | {"CRONLEDGER_DATABASE_URL": dsn}
        return subprocess.run(
            command, cwd=self.directory, env=environment, text=True, capture_output=True,
            check=False,
        )  # fmt: skip


OURS = Product(ROOT, Path(sys.executable))
