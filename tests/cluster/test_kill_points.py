"""A process is killed before and after every statement of every step; then the ledger is judged.

The list of points is generated: a recording run of each step lists what it sends. `make check`
kills at a spread of them, CRONLEDGER_KILL_POINTS=all at each.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cronledger.ledger.migrate import migrate, migrations
from tests import interruptions
from tests.cluster.support.kill_points import (
    ENGINE,
    WHOLE,
    Heir,
    Killer,
    Point,
    alone,
    build,
    judge,
    judge_looks,
    points,
    schema_of,
    spread,
    statements_of_the_steps,
    writers,
)
from tests.cluster.support.marks import VARIABLE
from tests.database import Databases
from tests.marks import first_fast

ALL = os.environ.get("CRONLEDGER_KILL_POINTS") == "all"


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    made = Killer(tmp_path_factory.mktemp("killer") / "log")
    yield made
    made.close()


class Worlds:
    """Templates by step, and what the step sends in it."""

    def __init__(self, databases: Databases, template: str, killer: Killer, marks: Path) -> None:
        self.databases = databases
        self._template = template
        self._killer = killer
        self._marks = marks
        self._made: dict[str, tuple[str, list[Point]]] = {}

    def of(self, step: str) -> tuple[str, list[Point]]:
        """The template of the step and its points, by runs in which nobody is killed."""
        if step not in self._made:
            name = self.databases.create(self._template)
            build(step, self.databases.url(name))
            # What happens to be under way elsewhere can make a step send more, never less.
            seen = min((self._record(step, name, n) for n in range(3)), key=len)
            self._made[step] = name, points(step, seen)
        return self._made[step]

    def _record(self, step: str, template: str, number: int) -> list[str]:
        """Return what the step sends in a run in which nobody is killed."""
        trial = self.databases.create(template)
        marks = self._marks / f"{step}-{number}"
        answer = self._killer.order(step, self.databases.url(trial), marks)
        assert not answer["killed"], answer
        assert "error" not in answer, answer
        seen: list[str] = answer["seen"]
        if "claim_look" in seen:
            with psycopg.connect(self.databases.url(trial)) as connection:
                reached = connection.execute("SELECT DISTINCT place FROM public.reached ORDER BY 1")
                seen += [place for (place,) in reached]
        self.databases.drop(trial)
        return seen


@pytest.fixture(scope="module")
def worlds(
    databases: Databases, template_database: str, killer: Killer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Worlds:  # fmt: skip
    return Worlds(databases, template_database, killer, tmp_path_factory.mktemp("recorded"))


@pytest.mark.long
@pytest.mark.timeout(0 if ALL else 1800)
@pytest.mark.parametrize("step", first_fast([*ENGINE, *WHOLE]))
def test_killed_at_any_statement_nothing_is_lost_or_doubled(
    step: str, worlds: Worlds, killer: Killer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "heir"))
    template, found = worlds.of(step)
    print(f"{step}: {len(found)} points")
    assert found
    for number, point in enumerate(found if ALL else spread(found, 11)):
        name, marks = killed_at(point, template, worlds.databases, killer, tmp_path / str(number))
        url = worlds.databases.url(name)
        with psycopg.connect(url, autocommit=True) as connection:
            alone(connection)
        heir = Heir(url)
        try:
            judge_looks(heir, step)
            asyncio.run(heir.take_over(step))
            judge(heir, step, marks)
        except AssertionError as error:
            raise AssertionError(f"killed at {point}: {error}") from error
        finally:
            heir.close()
        worlds.databases.drop(name)


def killed_at(
    point: Point, template: str, databases: Databases, killer: Killer, path: Path
) -> tuple[str, Path]:
    """Return the database in which a process was killed at the point, and the file of its marks.

    A run that did not send the statement is no case of it: the recorded one had to read a row that
    a heartbeat held, say. The step is done again in a fresh database.
    """
    for attempt in range(20):
        name, marks = databases.create(template), path.with_name(f"{path.name}-{attempt}")
        answer = killer.order(point.step, databases.url(name), marks, point)
        if answer["killed"]:
            assert answer["fired"] == point.name, (str(point), answer)
            return name, marks
        assert "error" not in answer, (str(point), answer)
        databases.drop(name)
    raise AssertionError(f"{point}: 20 runs of the step did not send this statement")


@pytest.mark.slow
def test_every_statement_of_these_steps_has_a_case(worlds: Worlds) -> None:
    """A new statement that no world makes a step send is a statement that nobody was killed at."""
    cases = {point.name for step in (*ENGINE, *WHOLE) for point in worlds.of(step)[1]}
    with psycopg.connect(worlds.databases.url(worlds.of("claim")[0])) as connection:
        assert writers(connection) <= statements_of_the_steps() <= cases
        places = {place for place in interruptions.places(connection) if "_look " in place}
        assert places <= cases


@pytest.mark.slow
@pytest.mark.timeout(0 if ALL else 1800)
@pytest.mark.parametrize("half", [0, 1])  # of the statements: one for each of two workers
def test_migrate_killed_at_any_statement_leaves_what_a_second_run_completes(
    half: int, databases: Databases, killer: Killer, tmp_path: Path
) -> None:
    """Statement by statement: those of the tables, of every function, of every view."""
    name = databases.create()
    answer = killer.order("migrate", databases.url(name), tmp_path)
    assert "error" not in answer, answer
    with psycopg.connect(databases.url(name), autocommit=True) as connection:
        whole = schema_of(connection)
    databases.drop(name)
    completed = set()
    found = points("migrate", answer["seen"])
    creations = sum(migration.text.count("\nCREATE ") for migration in migrations())
    assert len(found) > creations, "the scripts were not sent statement by statement"
    print(f"migrate: {len(found)} points")
    for point in found if ALL else _of_migrate(found):
        if point.at % 2 != half:
            continue
        name = databases.create()
        told = killer.order("migrate", databases.url(name), tmp_path, point)
        assert (told["killed"], told.get("fired")) == (True, point.name), (str(point), told)
        with psycopg.connect(databases.url(name), autocommit=True) as connection:
            alone(connection)
            left = schema_of(connection)
            if left not in completed:  # from the same state a second run does the same
                migrate(databases.url(name))
                assert schema_of(connection) == whole, str(point)
                completed.add(left)
        databases.drop(name)
    # Nothing, or all of some scripts: never something between.
    assert 2 <= len(completed) <= len(migrations()) + 1


def _of_migrate(found: list[Point]) -> list[Point]:
    """Around each transaction's edges, and some of the hundreds of statements inside."""
    return [p for n, p in enumerate(found) if p.name in ("BEGIN", "COMMIT") or n % 90 == 0]
