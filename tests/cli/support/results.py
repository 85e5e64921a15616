"""How a command ended, and what it printed."""

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result


def refused(said: Result, *words: str, code: int = 2) -> None:
    """Fail unless the command ended with this code, and its error has all words."""
    assert said.exit_code == code, said.output
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    for word in words:
        assert word in said.stderr, said.stderr


def done(cli: Callable[..., Result], *arguments: str) -> Result:
    """Return how a command ended, which has succeeded."""
    said = cli(*arguments)
    assert said.exit_code == 0, said.output
    return said


def read(cli: Callable[..., Result], *arguments: str, code: int = 0) -> Any:
    """Return the JSON that a command prints."""
    said = cli(*arguments, "--json")
    assert said.exit_code == code, said.output
    return json.loads(said.stdout)
