"""docs/features.md has a row with tests for each feature."""

import re
from pathlib import Path

import pytest

from docs.tools.features import GROUPS, ROOT, collect, document

ROW = re.compile(r"^\| F(\d+) \| [^|]+ \|(.*)\|$", re.MULTILINE)
LINK = re.compile(r"\[(\w+)\]\(\.\./([^)]+)\)")


def test_every_feature_has_a_row_with_tests_that_exist() -> None:
    rows = ROW.findall(document())
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    for number, cell in rows:
        links = LINK.findall(cell)
        assert links, f"F{number} has no test"
        for function, file in links:
            assert f"def {function}(" in (ROOT / file).read_text("utf-8"), function
            assert f"f{int(number):02}_" in function


def test_no_test_bears_a_number_that_there_is_not() -> None:
    assert collect().keys() <= {number for group in GROUPS.values() for number in group}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def test_f01_x(): ...", {1: ["test_f01_x"]}),
        ("async def test_f08_f35_x(): ...", {8: ["test_f08_f35_x"], 35: ["test_f08_f35_x"]}),
        ("class TestX:\n    def test_f02_x(self): ...", {2: ["test_f02_x"]}),
        ("def test_f1_x(): ...\ndef test_few(): ...\n# def test_f01_x()", {}),
    ],
)
def test_collect_reads_names(tmp_path: Path, text: str, found: dict[int, list[str]]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(text)
    assert {n: [test.function for test in tests] for n, tests in collect(tmp_path).items()} == found
