"""Which tests `make test` leaves to `make check`: those with the markers `long` and `slow`."""

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def slow(cases: Iterable[object]) -> list[ParameterSet]:
    """Return cases of a parametrized test as slow ones; a tuple is a case of several arguments."""
    return [_marked(case, pytest.mark.slow) for case in cases]


def first_fast(cases: Iterable[object]) -> list[object]:
    """Return cases of which `make test` runs the first one. The others are slow."""
    first, *others = cases
    return [first, *slow(others)]


def first_short(cases: Iterable[object]) -> list[object]:
    """Return cases of which `make test` runs the first one. The others are long."""
    first, *others = cases
    return [first, *(_marked(case, pytest.mark.long) for case in others)]


def _marked(case: object, mark: pytest.MarkDecorator) -> ParameterSet:
    match case:
        case ParameterSet(values=values, marks=marks, id=name):
            return pytest.param(*values, marks=[*marks, mark], id=name)
        case tuple():
            return pytest.param(*case, marks=mark)
    return pytest.param(case, marks=mark)
