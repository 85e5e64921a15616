"""A reader who types what the tutorial and the README show sees what they show."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cronledger.embedded.postmaster import private_directory
from cronledger.embedded.server import Embedded, find_binaries
from tests.database import chosen_binaries, fast_directory, scratch_directory
from tests.docs.support.pages import ROOT, Block, Shell, blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty directory; what still runs on an embedded PostgreSQL below it ends with the test."""
    parent = private_directory(fast_directory() / f"cronledger-tests-{os.geteuid()}")
    with scratch_directory(parent) as scratch:
        home = scratch / "home"
        home.mkdir()
        yield home


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_reader_can_follow(page: str, home: Path) -> None:
    directory, binaries = home / "embedded", find_binaries(chosen_binaries()).directory
    variables = {
        "CRONLEDGER_EMBEDDED_DIR": str(directory),
        "CRONLEDGER_EMBEDDED_BINARIES": str(binaries),
    }
    with Shell(home, variables, binaries) as shell:
        for block in blocks(ROOT / page):
            if block.language == "sql":
                execute(block, directory, binaries)
            else:
                shell.read(block)


def execute(block: Block, directory: Path, binaries: Path) -> None:
    """Run the statements of a block on the embedded server."""
    with Embedded(directory, binaries) as server, psycopg.connect(server.start()) as c:
        c.execute(block.text.encode())
