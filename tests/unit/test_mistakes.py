"""The deliberate mistakes of `make mutations` can still be made."""

from pathlib import Path

import pytest

from tests.mistakes.table import MISTAKES, Mistake

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("one", MISTAKES, ids=lambda one: one.name)
def test_the_text_that_a_mistake_replaces_occurs_once(one: Mistake) -> None:
    text = (ROOT / one.file).read_text("utf-8")
    assert one.made_in(text) != text
    file, _, name = one.test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text("utf-8")


def test_each_mistake_has_a_name_of_its_own() -> None:
    assert len({one.name for one in MISTAKES}) == len(MISTAKES)
