"""Progress: how much of its work an execution has done, as its handler reports it."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cronledger.rules import masks
from cronledger.rules.outcome import clean_text

MOST_TEXT = 200
MOST = 2**63 - 1


class Progress(NamedTuple):
    """`done` of `total` units of work, and what the handler is doing. None: not known."""

    done: int
    total: int | None
    text: str | None


def checked(done: Any, total: Any = None, text: Any = None) -> Progress:
    """Return the progress as it is stored.

    A `done` above `total` becomes `total`, because totals are often estimates. Passwords in the
    text are masked, and it is cut after 200 characters. Raises TypeError and ValueError, which name
    the field.
    """
    done = _count("done", done)
    if total is not None:
        total = _count("total", total)
        done = min(done, total)
    if text is not None:
        if not isinstance(text, str):
            raise TypeError(f"text is {text!r}: give a string, or None")
        text = clean_text(masks.scrubbed(text), MOST_TEXT)
    return Progress(done, total, text or None)


def _count(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} is {value!r}: give the number of units of work, an integer")
    if not 0 <= value <= MOST:
        raise ValueError(f"{field} is {value}: give a number from 0 to {MOST}")
    return value


def described(done: int, total: int | None, text: str | None) -> str:
    """Return the progress for people: `40 of 100 (40 %): pages`."""
    counted = f"{done:,}" if total is None else f"{done:,} of {total:,}"
    if total:
        counted += f" ({done * 100 // total} %)"
    return f"{counted}: {text}" if text else counted


def expected_end(
    started: datetime,
    now: datetime,
    usual: timedelta | None,
    reported: tuple[int, int | None, datetime] | None,
) -> datetime | None:
    """Return when a running attempt probably ends, or None if nothing indicates it.

    The rest takes as long for each unit as the work until the last report did. Without a total, or
    before the first unit is done, the attempt takes the usual time. None also if it has already
    taken longer than that, at the end of all units, and for an end that a datetime cannot have.

    `usual`: the median duration of the job. `reported`: done, total, and when they were reported.
    """
    try:
        if reported is not None:
            done, total, at = reported
            if total is not None and 0 < done < total and at > started:
                return started + (at - started) * (total / done)
        if usual is None or started + usual < now:
            return None
        return started + usual
    except OverflowError:  # SQL may write any duration, and a job may report any total
        return None
