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


def test_a_column_that_a_migration_drops_is_not_lost(url: str) -> None:
    with version("second"):
        migrate(url)
        assert (check(url).lost, check(url).damaged) == ((), ())
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


def test_a_dropped_table_stands_for_its_columns_and_indexes(url: str) -> None:
    execute(url, "DROP TABLE cronledger.books CASCADE")
    with version("first"):
        assert (check(url).lost, check(url).damaged) == (("table books",), ("view catalogue",))


def test_dropped_functions_and_views_are_created_again(url: str) -> None:
    execute(url, "DROP VIEW cronledger.catalogue")
    execute(url, "DROP FUNCTION cronledger.put(text, text)")
    with version("first"):
        state = check(url)
        assert state.damaged == ("function put(text, text)", "view catalogue")
        assert [found.name for found in state.pending] == [REPEATED]
        assert migrate(url) == [REPEATED]
        assert check(url).damaged == ()


def test_an_older_version_does_not_restore_functions_of_a_newer_one(url: str) -> None:
    with version("second"):
        migrate(url, phases=PRE)
    execute(url, "DROP FUNCTION cronledger.put(text, text)")
    with version("first"):
        assert check(url).damaged == ("function put(text, text)",)
        assert migrate(url) == []
    with version("second"):
        assert migrate(url, phases=PRE) == [REPEATED]


def test_objects_of_other_programs_are_not_recorded(url: str) -> None:
    execute(url, "CREATE INDEX by_title ON cronledger.books (title) WHERE shelf > 3")
    execute(url, "CREATE TABLE cronledger.theirs (a int)")
    with version("second"):
        migrate(url, phases=PRE)
    execute(url, "DROP INDEX cronledger.by_title; DROP TABLE cronledger.theirs")
    with version("second"):
        assert check(url).lost == ()


def test_the_script_records_as_migrate_does(url: str) -> None:
    with version("second"):
        text = script(state=check(url))
    with psycopg.connect(url) as connection:
        connection.execute(text.encode())
    with version("second"):
        state = check(url)
    assert (state.pending, state.lost, state.damaged) == ((), (), ())
    assert recorded(url, "0002_pre_place") == {"column books.place"}


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


def test_a_number_needs_a_phase(copied: Path) -> None:
    (copied / "0002_books.sql").write_text("", "utf-8")
    with version("first", copied), pytest.raises(MigrationError, match="neither NNNN_pre_ nor"):
        migrations()


def test_the_newest_number_is_that_of_the_program() -> None:
    with version("second"):
        assert newest_migration() == "0003"


def test_scripts_are_applied_in_the_declared_order(copied: Path) -> None:
    (copied / "order.txt").write_text("functions/required.sql\nviews\nfunctions\n", "utf-8")
    with version("first", copied):
        text = migrations()[-1].text
    assert text.index(".grant_roles()") < text.index("VIEW") < text.index(".put(")
    assert text.count(".grant_roles()") == 1


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ("functions\n", "views/catalogue.sql is not in order.txt"),
        ("functions\nviews\nviews/none.sql\n", "order.txt names views/none.sql, which does not"),
    ],
)
def test_a_script_and_its_place_in_the_order_need_each_other(
    copied: Path, order: str, problem: str
) -> None:
    (copied / "order.txt").write_text(order, "utf-8")
    with version("first", copied), pytest.raises(MigrationError, match=problem):
        migrations()
