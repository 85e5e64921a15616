"""The last 24 hours of many scopes at once, in cells: what lists of jobs show."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronledger.explain.day.states import BY_URGENCY, Counts, State
from cronledger.ledger.days import Row
from cronledger.rules.model import ScopeKey

WIDTH = timedelta(minutes=15)
CELLS = 96
MAX_ROWS = 1500
"""Executions of one job that are read, of all its scopes: all of one that fires every minute."""

_EMPTY: Counts = {}  # most cells of most strips
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Strip:
    """What became of the plan_times of one scope in each of CELLS cells from `start` on.

    A cell has the number of executions by state. A state of a skip has the count 0. `read_from`:
    the scope has more rows than were read, and its cells are known from this instant on.
    """

    key: ScopeKey
    start: datetime
    cells: tuple[Mapping[State, int], ...]
    read_from: datetime | None

    def totals(self) -> Mapping[State, int]:
        """Return the executions by state in all cells; a reason of skips has 0."""
        return _sum(cell for cell in self.cells if cell)

    def is_known(self, cell: int) -> bool:
        """Return whether everything in the cell was read."""
        return self.read_from is None or self.start + cell * WIDTH >= self.read_from


def parameters(keys: Sequence[ScopeKey], now: datetime) -> dict[str, object]:
    """Return the parameters of `list_strip_cells.sql` for the 24 hours until `now`."""
    scopes = Counter(key.job_name for key in set(keys))
    end = _EPOCH + ((now - _EPOCH) // WIDTH + 1) * WIDTH
    return {
        "jobs": [key.job_name for key in keys],
        "kinds": [key.scope_kind for key in keys],
        "scopes": [key.scope_id for key in keys],
        "start": end - CELLS * WIDTH,
        "end": end,
        "width": WIDTH,
        "max_rows": [MAX_ROWS // scopes[key.job_name] for key in keys],
    }


def strips(keys: Sequence[ScopeKey], start: datetime, rows: Sequence[Row]) -> list[Strip]:
    """Return the strip of each key, in their order. `rows`: those of `list_strip_cells.sql`."""
    cells: list[list[Mapping[State, int]]] = [[_EMPTY] * CELLS for _ in keys]
    read_from: list[datetime | None] = [None] * len(keys)
    for row in rows:
        place = row["n"] - 1
        found = {State(row["state"]): row["count"]}
        cells[place][row["cell"]] = {**cells[place][row["cell"]], **found}
        known = [at for at in (read_from[place], row["read_from"]) if at is not None]
        read_from[place] = max(known, default=None)
    return [
        Strip(key, start, tuple(mine), known)
        for key, mine, known in zip(keys, cells, read_from, strict=True)
    ]


def joined(found: Sequence[Strip]) -> Strip:
    """Return the strip of the scopes of one job: its cells have the executions of all of them.

    Its key is that of the first one. Raises ValueError if there are none.
    """
    if not found:
        raise ValueError("no strip was given")
    cells = [
        _sum(filter(None, of_all)) for of_all in zip(*(strip.cells for strip in found), strict=True)
    ]
    known = [strip.read_from for strip in found if strip.read_from is not None]
    return Strip(found[0].key, found[0].start, tuple(cells), max(known, default=None))


def worst(found: Sequence[Strip]) -> tuple[Strip, State] | None:
    """Return the strip with the most urgent state, and this state; None: nothing is in any strip.

    Of several strips with this state it is the one that has it most often.
    """
    ranked = [
        (urgency, -count, place)
        for place, strip in enumerate(found)
        for state, count in strip.totals().items()
        for urgency in [BY_URGENCY.index(state)]
    ]
    if not ranked:
        return None
    urgency, _, place = min(ranked)
    return found[place], BY_URGENCY[urgency]


def _sum(cells: Iterable[Counts]) -> Counts:
    found: dict[State, int] = {}
    for cell in cells:
        for state, count in cell.items():
            found[state] = found.get(state, 0) + count
    return found


def read_strips(
    read: Callable[[str, Mapping[str, object]], list[Row]], keys: Sequence[ScopeKey], now: datetime
) -> list[Strip]:
    """Return the strips of these scopes until `now`, by one statement. Raises what `read` does."""
    given = parameters(keys, now)
    start = given["start"]
    assert isinstance(start, datetime)
    return strips(keys, start, read("list_strip_cells", given))
