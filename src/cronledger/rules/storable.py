"""Limits of the JSON values in the ledger. `json_problem` in SQL enforces the same limits.

JSON parsers fail at very different depths, and some of them crash. The depth is therefore limited
when a value is written.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cronledger.rules.problems import RefusedError

JSON_BYTES = 64 * 1024
JSON_DEPTH = 100
TOO_DEEP = f"is nested more than {JSON_DEPTH} levels deep"
TOO_GREAT = "contains a number of 1.8e308 or more, which most JSON parsers read as infinite"
ELSEWHERE = "store the data elsewhere, and put a reference to it here"
_CONTAINERS = (Mapping, list, tuple)
PLAIN = "use strings, numbers, booleans, lists and mappings"


def problem(value: Any) -> tuple[str, str] | None:
    """Return why `value` cannot be stored and the remedy, or None if it can be stored."""
    try:
        text(value)
    except RefusedError as error:
        return error.problem, error.remedy
    return None


def text(value: Any) -> str:
    """Return `value` as JSON in ASCII. Raises RefusedError if it cannot be stored."""
    try:
        found = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except RecursionError:
        raise RefusedError(TOO_DEEP, ELSEWHERE) from None
    except (TypeError, ValueError) as error:
        raise RefusedError(f"is not JSON: {error}", PLAIN) from None
    size = len(found.encode("utf-8", "surrogatepass"))
    if size > JSON_BYTES:
        raise RefusedError(f"has {size} bytes of JSON; the limit is {JSON_BYTES}", ELSEWHERE)
    # A shorter text has room neither for so many brackets nor for the digits of such a number.
    if size > 2 * JSON_DEPTH and (wrong := beyond_readers(value)) is not None:
        raise RefusedError(wrong, ELSEWHERE)
    return found if found.isascii() else json.dumps(value)


def beyond_readers(value: Any) -> str | None:
    """Return why JSON parsers may fail at `value`, which has no cycle, or None."""
    for level in _levels(value):
        if any(isinstance(inner, int) and abs(inner) > sys.float_info.max for inner in level):
            return TOO_GREAT
    return TOO_DEEP if is_deeper(value, JSON_DEPTH) else None


def is_deeper(value: Any, limit: int) -> bool:
    """Return whether `value`, which has no cycle, nests more than `limit` lists and mappings."""
    return any(
        depth >= limit and any(isinstance(inner, _CONTAINERS) for inner in level)
        for depth, level in enumerate(_levels(value))
    )


def _levels(value: Any) -> Iterator[list[Any]]:
    level = [value]
    while level:
        yield level
        level = [inner for outer in level for inner in _inside(outer)]


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, _CONTAINERS) else ()
