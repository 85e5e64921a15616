"""Each generated document is what its generator writes."""

from pathlib import Path
from types import ModuleType

import pytest

from docs.tools import commands, configuration, events, sql

pytestmark = pytest.mark.tools

DOCS = Path(__file__).parents[2] / "docs"
REMEDY = "it is out of date; run `make docs`"


@pytest.mark.parametrize("generator", [configuration, commands, events])
def test_a_document_is_up_to_date(generator: ModuleType) -> None:
    name = generator.__name__.rpartition(".")[2]
    assert (DOCS / f"{name}.md").read_text("utf-8") == generator.document(), REMEDY


def test_the_sql_interface_is_up_to_date(database_url: str) -> None:
    assert (DOCS / "sql.md").read_text("utf-8") == sql.document(database_url), REMEDY


def test_every_event_has_a_level() -> None:
    assert set(events.logged()) == set(events.EVENTS)
