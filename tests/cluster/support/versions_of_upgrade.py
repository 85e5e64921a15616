"""The two versions of the upgrade test: an older wheel in an environment of its own, and a newer
tree."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.processes import clean_environ

ROOT = Path(__file__).parents[3]
ADDED = Path(__file__).with_name("upgrade_migrations")
VARIABLE = "CRONLEDGER_TEST_UPGRADE_FROM"
"""The variable with the tag or commit of the older version."""


class Version(NamedTuple):
    """The command line of a version, and the variables with which it runs."""

    command: Sequence[str]
    variables: Mapping[str, str] = MappingProxyType({})

    def call(self, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end."""
        environ = {**clean_environ(), **self.variables, "CRONLEDGER_DATABASE_URL": url}
        return subprocess.run(
            [*self.command, *arguments], cwd=ROOT, env=environ, capture_output=True, text=True,
            check=False,
        )  # fmt: skip


def older_source() -> str | None:
    """Return the tag or commit of the older version; None: the present tree.

    It is the newest release before the present commit. The present tree stands for it before the
    first release, in a clone without tags and in the sdist.
    """
    if given := os.environ.get(VARIABLE):
        return given
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return None
    tags = _git("tag", "--list", "v*", "--no-contains", "HEAD", "--sort=-version:refname")
    return next(iter(tags.decode().split()), None)


def older(directory: Path) -> Version:
    """Install the older version as a user would, into an environment in this directory."""
    source, environment = older_source(), directory / "older"
    tree = ROOT
    if source is not None:
        tree = directory / "source"
        with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", source))) as archive:
            archive.extractall(tree, filter="data")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = (environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    wheels = directory / "wheels"
    # Built from a copy, because the build writes into the tree.
    built = shutil.copytree(tree, directory / "build", ignore=_unbuilt)
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", wheels, built], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "-q", wheel], check=True)
    print(f"the older version: {source or 'the present tree'}, {wheel.name}")
    return Version([str(environment / "bin" / "cronledger")])


def newer(directory: Path) -> Version:
    """Copy the present tree, and add migrations of each phase to the copy."""
    copy = directory / "newer"
    for name in ("src", "migrations"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ADDED.glob("[0-9]*.sql"):
        shutil.copy(path, copy / "migrations")
    shutil.copy(ADDED / "upgraded.sql", copy / "migrations" / "views")
    program = "from cronledger.cli import main; main()"
    return Version([sys.executable, "-c", program], {"PYTHONPATH": str(copy / "src")})


def _unbuilt(directory: str, names: Sequence[str]) -> list[str]:
    """Return what the wheel does not need: most of a tree is tests, documents and environments."""
    if Path(directory).name not in ("source", ROOT.name) or "pyproject.toml" not in names:
        return []
    needed = {"src", "migrations", "pyproject.toml", "README.md", "LICENSE"}
    return [name for name in names if name not in needed]


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
