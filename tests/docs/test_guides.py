"""A reader who types what the README, the tutorial and the guides show sees what they show."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cronledger.embedded.postmaster import private_directory
from cronledger.embedded.server import Embedded, find_binaries
from tests.database import chosen_binaries, fast_directory, scratch_directory
from tests.docs.support.pages import ROOT, Shell, blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# tests/db/test_three_roles.py follows roles.md, which makes roles, on a server of its own.
GUIDES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [*(ROOT / "docs" / "howto").glob("*.md"), ROOT / "docs" / "policies.md"]
    if page.name != "roles.md"
    and any(block.language in ("console", "sql") for block in blocks(page))
)


ROLE = re.compile(r"^CREATE ROLE (\w+)", re.MULTILINE)


def follow(page: str, shell: Shell, database: Callable[[], AbstractContextManager[str]]) -> None:
    """Do what a page shows. `database` lends the URL on which its SQL runs.

    Roles belong to the server, and an earlier run may have left those of the page.
    """
    for block in blocks(ROOT / page):
        if block.language == "sql":
            with database() as url, psycopg.connect(url) as c:
                for name in ROLE.findall(block.text):
                    c.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))
                c.execute(block.text.encode())
        else:
            shell.read(block)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_reader_can_follow_a_guide(guide: str, database_url: str, tmp_path: Path) -> None:
    variables = {"CRONLEDGER_DATABASE_URL": database_url, "UVICORN_PORT": "0"}
    with Shell(tmp_path, variables, find_binaries(chosen_binaries()).directory) as shell:
        follow(guide, shell, lambda: nullcontext(database_url))


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty directory; what still runs on an embedded PostgreSQL below it ends with the test."""
    parent = private_directory(fast_directory() / f"cronledger-tests-{os.geteuid()}")
    with scratch_directory(parent) as scratch:
        home = scratch / "home"
        home.mkdir()
        yield home


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_reader_can_follow_on_an_embedded_server(page: str, home: Path) -> None:
    directory, binaries = home / "embedded", find_binaries(chosen_binaries()).directory
    variables = {
        "CRONLEDGER_EMBEDDED_DIR": str(directory), "CRONLEDGER_EMBEDDED_BINARIES": str(binaries),
    }  # fmt: skip

    @contextmanager
    def embedded() -> Iterator[str]:
        with Embedded(directory, binaries) as server:
            yield server.start()

    with Shell(home, variables, binaries) as shell:
        follow(page, shell, embedded)
