"""Ordered streams of rows, which the audit merges."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Stream(Generic[T]):
    """A stream of rows in the order of `position`, which is read part by part."""

    def __init__(self, rows: Iterable[T], position: Callable[[T], Any]) -> None:
        self._rows = iter(rows)
        self._position = position
        self._next = next(self._rows, None)

    def before(self, position: Any) -> Iterator[T]:
        """Yield the rows that are left before this position."""
        while (row := self._next) is not None and self._position(row) < position:
            self._next = next(self._rows, None)
            yield row

    def through(self, position: Any) -> Iterator[T]:
        """Yield the rows that are left up to this position and at it."""
        while (row := self._next) is not None and self._position(row) <= position:
            self._next = next(self._rows, None)
            yield row

    def rest(self) -> Iterator[T]:
        """Yield all rows that are left."""
        while (row := self._next) is not None:
            self._next = next(self._rows, None)
            yield row
