"""Where a job is declared: lines of TOML, of functions and of errors."""

import functools
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.sources.places import place_of_error, place_of_function, toml_line, toml_lines

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


def numbered(path: tuple[str, ...]) -> int:
    return toml_lines(TEXT)[path]


def test_tables_and_keys_have_the_lines_on_which_they_begin() -> None:
    tomllib.loads(TEXT)
    backup = ("jobs", "nightly backup")
    assert numbered(("cronledger", "slots")) == 3
    assert numbered(backup) == 5
    lines = {name: numbered((*backup, name)) for name in ("schedule", "sql", "scopes", "env")}
    assert lines == {"schedule": 6, "sql": 7, "scopes": 12, "env": 17}
    assert numbered(("jobs", "b", "http", "url")) == 20
    assert numbered(("jobs", "c")) == 22
    assert ("jobs", "not_a_table") not in toml_lines(TEXT)


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
        (Problem(job="b", field="http.url"), 20),
        (Problem(job="b", field="queue"), 19),  # a default: its table
        (Problem(job="b"), 19),
        (Problem(job="unknown", field="queue"), 21),
        (Problem(field="cronledger.slots"), 3),
        (Problem(field="cronledger.slot"), 2),
        (Problem(field="elsewhere"), None),
        (Problem(message="is not TOML: Invalid value (at line 7, column 1)"), 7),
        (Problem(message="cannot be read"), None),
    ],
)
def test_a_problem_is_at_the_line_of_its_key(problem: Problem, line: int | None) -> None:
    assert toml_line(toml_lines(TEXT), problem) == line


def test_a_table_that_only_its_subtables_name_has_the_line_of_the_first() -> None:
    lines = toml_lines("[a.b.c]\nx = 1\n[a.d]\n[a.b]\ny = 1\n[[a.e.f]]\n")
    assert {path: line for path, line in lines.items() if path[-1] in "abcdef"} == {
        ("a",): 1, ("a", "b"): 4, ("a", "b", "c"): 1, ("a", "d"): 3, ("a", "e"): 6,
        ("a", "e", "f"): 6,
    }  # fmt: skip


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def call() -> None:
        function()

    return call


@decorated
def job() -> None: ...


def test_a_function_is_where_its_decorators_begin() -> None:
    place = place_of_function(job)
    assert place is not None and Path(place.file) == Path(__file__)
    assert place.line is not None
    assert Path(__file__).read_text().splitlines()[place.line - 1] == "@decorated"
    assert place_of_function(len) is None
    assert place_of_function(functools.partial(job)) is None


def test_an_error_is_at_the_innermost_line_of_the_user() -> None:
    def fails() -> None:
        os.fspath(7)  # type: ignore[call-overload]

    for raises in (fails, lambda: ConfigurationError.__init__(1, 2)):  # type: ignore[arg-type]
        with pytest.raises((TypeError, AttributeError)) as raised:
            raises()
        place = place_of_error(raised.value)
        assert place is not None and place.file == __file__
    with pytest.raises(SyntaxError) as wrong:
        compile("x = 1\ndef f(:\n", "typo.py", "exec")
    assert place_of_error(wrong.value) == ("typo.py", 2)
    assert place_of_error(ValueError("was never raised")) is None
