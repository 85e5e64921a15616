"""The seconds of a day, one byte each, because a job may have a plan_time in each of them.

A byte is the code of a state, and 0 where there is none. Whole days are combined at once, as
numbers of 86,400 bytes.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from cronledger.explain.day.local_day import LocalDay
from cronledger.explain.day.states import State

SECOND = timedelta(seconds=1)
MINUTE = 60

Bytes = bytes | bytearray

_STATES = list(State)
_CODES = {state: code for code, state in enumerate(_STATES, start=1)}
_ABSENT = b"\xff" + b"\0" * 255
_ANY = re.compile(rb"[^\0]")


class Axis:
    """The places of instants among the seconds between the start and the end of a day."""

    def __init__(self, local: LocalDay) -> None:
        self.start = local.start
        self.length = (local.end - local.start) // SECOND
        self._foreign = list(local.foreign())

    def through(self, instant: datetime) -> int:
        """Return the number of seconds of the day that are not after `instant`."""
        return min(max((instant - self.start) // SECOND + 1, 0), self.length)

    def place(self, instant: datetime) -> int:
        """Return the place of an instant, which may lie outside of the day."""
        return (instant - self.start) // SECOND

    def instant(self, place: int) -> datetime:
        """Return the instant of a second."""
        return self.start + place * SECOND

    def own(self) -> bytes:
        """Return the seconds that belong to the date, and not to another one between them."""
        found = bytearray(b"\xff" * self.length)
        for first, end in self._foreign:
            fill(found, self.place(first), self.place(end), 0)
        return bytes(found)


def code(state: State | None) -> int:
    """Return the byte of a state."""
    return 0 if state is None else _CODES[state]


def state(byte: int) -> State:
    """Return the state of a byte that is not 0."""
    return _STATES[byte - 1]


def fill(seconds: bytearray, first: int, end: int, byte: int) -> None:
    """Write one byte to the seconds from `first` on that are before `end`, if there are any."""
    if first < end:
        seconds[first:end] = bytes([byte]) * (end - first)


def by_bits(mask: int, byte: int, length: int) -> bytes:
    """Return `length` seconds, of which those whose bit is set in `mask` have this byte."""
    bits = f"{mask:0{length}b}"[::-1][:length].encode()
    return bits.translate(bytes.maketrans(b"01", bytes([0, byte])))


def marked(seconds: Bytes, byte: int) -> bytes:
    """Return this byte for each second that is not 0."""
    return bytes(seconds.translate(b"\0" + bytes([byte]) * 255))


def kept(seconds: Bytes, among: Bytes) -> bytes:
    """Return the seconds that are not 0 in `among`. The others are 0."""
    return _bytes(_number(seconds) & _number(marked(among, 255)), len(seconds))


def without(seconds: Bytes, others: Bytes) -> bytes:
    """Return the seconds that are 0 in `others`. The others are 0."""
    return _bytes(_number(seconds) & _number(others.translate(_ABSENT)), len(seconds))


def either(seconds: Bytes, others: Bytes) -> bytes:
    """Return `seconds`, and those of `others` where they are 0."""
    return _bytes(_number(seconds) | _number(without(others, seconds)), len(seconds))


def places(seconds: Bytes) -> Iterator[tuple[int, State]]:
    """Yield the place and the state of each second that has one, in order."""
    for found in _ANY.finditer(seconds):
        yield found.start(), state(seconds[found.start()])


def counted(seconds: Bytes) -> Iterator[tuple[State, int]]:
    """Yield each state that is present, and its number."""
    for byte in set(seconds) - {0}:
        yield state(byte), seconds.count(byte)


def _number(seconds: Bytes) -> int:
    return int.from_bytes(seconds, "little")


def _bytes(number: int, length: int) -> bytes:
    return number.to_bytes(length, "little")
