"""Where a job is declared in TOML. `cli/test_check` has the lines of functions and errors."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cronledger.rules.problems import Problem
from cronledger.sources.places import toml_line, toml_lines

TEXT = '''# a comment
[cronledger]
slots = 3

[ jobs . "nightly backup" ]  # spaces are allowed
schedule = "30 2 * * *"
sql = """
SELECT 1; -- ]
[jobs.not_a_table]
schedule = "no key"
"""
scopes = [
    "a", # ]
    "b",
]
retry_backoff = []
env.LEVEL = "9"

[jobs.b]
http = { url = "https://x/y" }
[jobs]
c = { schedule = "@daily", external = true }
'''


def test_every_table_and_key_of_a_file_is_found() -> None:
    text = (Path(__file__).parents[2] / "examples" / "sample.toml").read_text("utf-8")
    lines, rows = toml_lines(text), text.splitlines()

    def check(path: tuple[str, ...], table: Mapping[str, Any]) -> None:
        for name, value in table.items():
            if isinstance(value, dict):
                check((*path, name), value)
            else:
                assert rows[lines[(*path, name)] - 1].startswith(f"{name} =")

    check((), tomllib.loads(text))


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (Problem(job="nightly backup", field="schedule"), 6),
        (Problem(job="nightly backup", field="scopes[1]"), 12),
        (Problem(job="nightly backup", field="env"), 17),
        (Problem(job="not_a_table"), 21),
        (Problem(job="c"), 22),
        (Problem(job="b", field="http.url"), 20),
        (Problem(job="b", field="queue"), 19),  # a default: its table
        (Problem(job="unknown", field="queue"), 21),
        (Problem(field="cronledger.slots[0]"), 3),
        (Problem(field="cronledger.slot"), 2),
        (Problem(field="elsewhere"), None),
        (Problem(message="is not TOML: Invalid value (at line 7, column 1)"), 7),
    ],
)
def test_a_problem_is_at_the_line_of_its_key(problem: Problem, line: int | None) -> None:
    tomllib.loads(TEXT)
    assert toml_line(toml_lines(TEXT), problem) == line


def test_a_table_that_only_its_subtables_name_has_the_line_of_the_first() -> None:
    lines = toml_lines("[a.b.c]\nx = 1\n[a.d]\n[a.b]\ny = 1\n[[a.e.f]]\n")
    assert {path: line for path, line in lines.items() if path[-1] in "abcdef"} == {
        ("a",): 1, ("a", "b"): 4, ("a", "b", "c"): 1, ("a", "d"): 3, ("a", "e"): 6,
        ("a", "e", "f"): 6,
    }  # fmt: skip
