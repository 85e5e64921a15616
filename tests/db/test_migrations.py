"""The mechanism of migrations, on two versions of a small schema (`tests/db/migrations`)."""

import shutil
from pathlib import Path

import psycopg
import pytest

from cronledger.ledger.migrate import (
    REPEATED,
    MigrationError,
    Phase,
    SchemaNewerError,
    check,
    migrate,
    migrations,
    newest_migration,
    require_current,
    require_usable,
    script,
)
from tests.db.support.versions import ROOT, version

PRE: tuple[Phase, ...] = ("pre", "repeated")


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def put(url: str, title: str, place: str) -> None:
    execute(url, f"SELECT cronledger.put('{title}', '{place}')")


def places(url: str) -> dict[object, object]:
    return dict(execute(url, "SELECT title, place FROM cronledger.catalogue"))  # type: ignore[arg-type]


@pytest.fixture
def url(empty_database_url: str) -> str:
    """A database that the first version has migrated and written to."""
    with version("first"):
        assert migrate(empty_database_url) == ["0001_pre_books", REPEATED]
    put(empty_database_url, "Emma", "7")
    return empty_database_url


def test_a_rolling_upgrade_keeps_both_versions_working_until_its_post_migration(url: str) -> None:
    with version("second"):
        with pytest.raises(MigrationError, match="0002_pre_place, functions and views is not"):
            require_current(check(url), "cronledger")
        assert migrate(url, phases=PRE) == ["0002_pre_place", REPEATED]
        pending = check(url).pending
        assert [found.name for found in pending] == ["0003_post_shelf"]
        require_current(check(url), "cronledger")
    put(url, "Persuasion", "by the door")
    with version("first"):
        require_current(check(url), "cronledger")
        assert check(url).unknown == ("0002_pre_place",)
        assert migrate(url, phases=PRE) == []  # and its functions do not replace the newer ones
        execute(url, "INSERT INTO cronledger.books (title, shelf) VALUES ('Sanditon', 9)")
    put(url, "The Watsons", "attic")
    with version("second"):
        assert migrate(url) == ["0003_post_shelf"]
        assert check(url).pending == ()
        assert newest_migration() == "0003"
    assert places(url) == {
        "Emma": "7", "Persuasion": "by the door", "Sanditon": "9", "The Watsons": "attic",
    }  # fmt: skip
    with version("first"):
        with pytest.raises(SchemaNewerError, match=r"0003_post_shelf, which this .* 1\.0\.0"):
            require_usable(check(url))
        with pytest.raises(SchemaNewerError, match="upgrade it"):
            migrate(url)


def test_a_schema_of_a_development_version_is_refused_with_a_remedy(url: str) -> None:
    execute(
        url,
        "UPDATE cronledger.schema_migrations SET name = '0001_pre_tables' WHERE phase = 'pre';"
        "ALTER TABLE cronledger.schema_migrations DROP COLUMN objects",
    )
    with version("second"):
        for used in (check, migrate):
            with pytest.raises(MigrationError, match="drop the schemas cronledger and"):
                used(url)
    assert places(url) == {"Emma": "7"}


@pytest.mark.parametrize("by", ["migrate", "script"])
def test_a_column_that_a_migration_drops_is_not_lost(url: str, by: str) -> None:
    with version("second"):
        if by == "migrate":
            migrate(url)
        else:
            execute(url, script(state=check(url)))
        state = check(url)
        assert (state.pending, state.lost, state.damaged) == ((), (), ())
    # With the column went its index, which the first version had created.
    assert recorded(url, "0001_pre_books") == {
        "table books", "column books.title", "index books.books_pkey",
    }  # fmt: skip
    assert recorded(url, "0002_pre_place") == {"column books.place"}
    assert recorded(url, "0003_post_shelf") == set()


def recorded(url: str, name: str) -> set[object]:
    found = f"SELECT unnest(objects) FROM cronledger.schema_migrations WHERE name = '{name}'"
    return {one for (one,) in execute(url, found)}


def test_a_dropped_table_column_and_index_are_lost(url: str) -> None:
    with version("first"):
        execute(url, "DROP INDEX cronledger.books_shelf")
        assert check(url).lost == ("index books.books_shelf",)
        execute(url, "ALTER TABLE cronledger.books DROP COLUMN shelf CASCADE")
        state = check(url)
        assert state.lost == ("column books.shelf", "index books.books_shelf")
        assert (state.damaged, state.pending) == (("view catalogue",), ())
        assert migrate(url) == []
    with version("second"):  # which drops nothing that was lost before
        execute(url, "ALTER TABLE cronledger.books ADD COLUMN shelf integer")
        migrate(url)
        assert check(url).lost == ("index books.books_shelf",)
    execute(url, "DROP TABLE cronledger.books CASCADE")
    with version("second"):  # a table stands for its columns and indexes
        assert check(url).lost == ("table books",)


def test_dropped_functions_and_views_are_created_again(url: str) -> None:
    execute(url, "DROP VIEW cronledger.catalogue")
    execute(url, "DROP FUNCTION cronledger.put(text, text)")
    with version("first"):
        state = check(url)
        assert state.damaged == ("function put(text, text)", "view catalogue")
        assert [found.name for found in state.pending] == [REPEATED]
        assert migrate(url) == [REPEATED]
        assert check(url).damaged == ()


def test_objects_of_other_programs_are_not_recorded(url: str) -> None:
    execute(url, "CREATE INDEX by_title ON cronledger.books (title) WHERE shelf > 3")
    execute(url, "CREATE TABLE cronledger.theirs (a int)")
    with version("second"):
        migrate(url, phases=PRE)
    execute(url, "DROP INDEX cronledger.by_title; DROP TABLE cronledger.theirs")
    with version("second"):
        assert check(url).lost == ()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the scripts of the first version, to change."""
    return Path(shutil.copytree(ROOT / "first", tmp_path / "scripts"))


def test_an_applied_migration_with_another_text_is_refused(url: str, copied: Path) -> None:
    (copied / "0001_pre_books.sql").write_text("CREATE TABLE {schema}.books ();", "utf-8")
    with (
        version("first", copied),
        pytest.raises(MigrationError, match="0001_pre_books was applied with another text"),
    ):
        migrate(url)


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("0002_books.sql", "", "neither NNNN_pre_ nor"),
        ("order.txt", "functions\n", "views/catalogue.sql is not in order.txt"),
        ("order.txt", "functions\nviews\nviews/none.sql\n", "names views/none.sql, which does not"),
    ],
)
def test_a_script_has_a_phase_and_a_place_in_the_order(
    copied: Path, file: str, text: str, problem: str
) -> None:
    (copied / file).write_text(text, "utf-8")
    with version("first", copied), pytest.raises(MigrationError, match=problem):
        migrations()
