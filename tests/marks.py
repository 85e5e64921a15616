"""Which tests `make test` leaves to `make check`: those with the marker `slow`."""

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def slow(cases: Iterable[object]) -> list[ParameterSet]:
    """Return cases of a parametrized test as slow ones; a tuple is a case of several arguments."""
    return [_slow(case) for case in cases]


def first_fast(cases: Iterable[object]) -> list[object]:
    """Return cases of which `make test` runs the first one."""
    first, *others = cases
    return [first, *slow(others)]


def _slow(case: object) -> ParameterSet:
    match case:
        case ParameterSet(values=values, marks=marks, id=name):
            return pytest.param(*values, marks=[*marks, pytest.mark.slow], id=name)
        case tuple():
            return pytest.param(*case, marks=pytest.mark.slow)
    return pytest.param(case, marks=pytest.mark.slow)
