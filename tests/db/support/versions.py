"""Two versions of a small schema, as two versions of cronledger would migrate it.

`first` has books with the number of a shelf. `second` names the place instead: a pre migration adds
its column, functions and views use it, and a post migration drops the number.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from cronledger.ledger import migrate

ROOT = Path(__file__).parents[1] / "migrations"
VERSIONS = {"first": "1.0.0", "second": "2.0.0"}


@contextmanager
def version(name: str, directory: Path | None = None) -> Iterator[None]:
    """Let `migrate` be this version, with its own scripts or those of `directory`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "directory", lambda: directory or ROOT / name)
        patch.setattr(metadata, "version", lambda _: VERSIONS[name])
        yield
