"""Who may do what: decided for every object, in one place, and granted whenever roles appear."""

import contextlib
from itertools import product

import pytest
from psycopg import errors, sql

from cronledger.ledger.migrate import check, migrate
from tests.db.support.rows import Db, job, value

SCHEMAS = ("cronledger", "cronledger_internal")
ROLES = ("cronledger_viewer", "cronledger_operator", "cronledger_runner")

OBJECTS = """
SELECT DISTINCT 'EXECUTE' AS privilege, p.proname::text AS object FROM pg_proc p
WHERE p.pronamespace::regnamespace::text ~ '^cronledger'
UNION
SELECT CASE c.relkind WHEN 'S' THEN 'USAGE' ELSE 'SELECT' END, c.relname FROM pg_class c
WHERE c.relnamespace = 'cronledger'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
  AND NOT c.relispartition
"""
HELD = """
SELECT coalesce(r.rolname::text, 'PUBLIC') AS role, a.privilege_type AS privilege, o.name AS object
FROM (SELECT p.proname::text AS name, coalesce(p.proacl, acldefault('f', p.proowner)) AS acl,
             p.proowner AS owner
      FROM pg_proc p WHERE p.pronamespace::regnamespace::text ~ '^cronledger'
      UNION ALL
      SELECT c.relname, c.relacl, c.relowner FROM pg_class c
      WHERE c.relnamespace = 'cronledger'::regnamespace AND NOT c.relispartition) o
CROSS JOIN LATERAL aclexplode(o.acl) a
LEFT JOIN pg_roles r ON r.oid = a.grantee
WHERE a.grantee <> o.owner
"""


def test_every_object_has_a_decided_right(db: Db) -> None:
    """A new object needs a line in decided_grants.sql, if only for nobody."""
    decided = db.execute("SELECT DISTINCT privilege, object FROM cronledger.decided_grants()")
    lines = {(row["privilege"], row["object"]) for row in decided}
    there = {(row["privilege"], row["object"]) for row in db.execute(OBJECTS)}
    assert there - lines == set(), (
        "decide who may use it, in migrations/functions/rights/decided_grants.sql"
    )
    assert {object for _, object in lines} - {object for _, object in there} == set()


def test_a_right_is_held_if_and_only_if_it_was_decided(db: Db) -> None:
    decided = {
        (row["role"], row["privilege"], row["object"])
        for row in db.execute("SELECT * FROM cronledger.decided_grants() WHERE role IS NOT NULL")
    }
    assert {(row["role"], row["privilege"], row["object"]) for row in db.execute(HELD)} == decided
    for role in ROLES:
        for schema in SCHEMAS:
            assert value(db, "SELECT has_schema_privilege(%s, %s, 'USAGE')", role, schema)
    for schema in SCHEMAS:
        assert not value(db, "SELECT has_schema_privilege('public', %s, 'USAGE')", schema)


def test_what_is_missing_is_granted_by_the_next_migration(db: Db, database_url: str) -> None:
    db.execute("REVOKE USAGE ON SCHEMA cronledger FROM cronledger_viewer")
    db.execute("REVOKE SELECT ON cronledger.ledger FROM cronledger_viewer")
    db.execute("REVOKE EXECUTE ON FUNCTION cronledger.retire FROM cronledger_operator")
    db.execute("GRANT EXECUTE ON FUNCTION cronledger_internal.drop_partition TO PUBLIC")
    missing = {
        "REVOKE EXECUTE ON FUNCTION cronledger_internal.drop_partition(text) FROM PUBLIC",
        "GRANT USAGE ON SCHEMA cronledger TO cronledger_viewer",
        "GRANT SELECT ON TABLE cronledger.ledger TO cronledger_viewer",
        "GRANT EXECUTE ON FUNCTION cronledger.retire(text,text) TO cronledger_operator",
    }
    assert set(check(database_url).ungranted) == missing
    assert set(migrate(database_url)) == missing
    assert check(database_url).ungranted == ()
    assert migrate(database_url) == []


def test_a_function_made_anew_is_not_open_to_everybody(db: Db, database_url: str) -> None:
    """DROP and CREATE, as after a change of a signature, gives EXECUTE to PUBLIC."""
    text = value(db, "SELECT pg_get_functiondef('cronledger.retire'::regproc)")
    db.execute("DROP FUNCTION cronledger.retire")
    db.execute(text)
    migrate(database_url)
    test_a_right_is_held_if_and_only_if_it_was_decided(db)


def test_who_does_not_own_the_schema_grants_nothing(db: Db) -> None:
    db.execute("REVOKE SELECT ON cronledger.ledger FROM cronledger_viewer")
    with db.transaction(force_rollback=True):
        db.execute("CREATE ROLE cronledger_test_not_owner")
        db.execute("GRANT USAGE ON SCHEMA cronledger TO cronledger_test_not_owner")
        db.execute("GRANT EXECUTE ON FUNCTION cronledger.grant_roles TO cronledger_test_not_owner")
        owner = value(db, "SELECT current_user")
        db.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier("cronledger_test_not_owner")))
        with pytest.raises(errors.InsufficientPrivilege, match="may not grant rights") as refused:
            db.execute("SELECT cronledger.grant_roles()")
    assert refused.value.diag.message_hint == f"Run this as the owner of the schema, {owner}."


def test_functions_with_the_rights_of_their_owner_pin_their_search_path(db: Db) -> None:
    found = db.execute(
        "SELECT p.oid::regprocedure::text AS name, p.proconfig FROM pg_proc p"
        " WHERE p.pronamespace::regnamespace::text ~ '^cronledger' AND p.prosecdef"
    ).fetchall()
    assert len(found) > 20
    pinned = "search_path=pg_catalog, pg_temp"
    assert [row["name"] for row in found if pinned not in (row["proconfig"] or [])] == []


HOSTILE = "x'); DROP TABLE cronledger.jobs CASCADE; --\" $$ \\"
TEXTS = {
    "trigger": 3, "enqueue": 2, "pause": 2, "resume": 2, "pause_queue": 3, "resume_queue": 2,
    "pause_all": 2, "take_results": 1, "is_dirty": 3, "retire": 2,
}  # fmt: skip


def test_what_operators_write_is_data_and_names_are_the_ledgers(db: Db) -> None:
    """As an operator who would like more: quotes in every text, and a search_path of traps."""
    job(db)
    db.execute("CREATE SCHEMA traps")
    db.execute("CREATE TABLE traps.jobs (LIKE cronledger.jobs)")
    trap = "LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped as %'', current_user; END'"
    db.execute(f"CREATE FUNCTION traps.format(text, VARIADIC text[]) RETURNS text {trap}".encode())
    db.execute(f"CREATE FUNCTION traps.length(text) RETURNS integer {trap}".encode())
    db.execute(f"CREATE FUNCTION traps.pg_notify(text, text) RETURNS void {trap}".encode())
    db.execute("GRANT USAGE ON SCHEMA traps TO cronledger_operator")
    db.execute("SET search_path = traps, cronledger, pg_catalog")
    db.execute("SET ROLE cronledger_operator")
    for function, first in product(TEXTS, ("job", HOSTILE)):
        arguments = [first, *[HOSTILE] * (TEXTS[function] - 1)]
        call = sql.SQL("SELECT * FROM cronledger.{}({})").format(
            sql.Identifier(function), sql.SQL(", ").join(map(sql.Literal, arguments))
        )
        with contextlib.suppress(errors.NoDataFound, errors.InvalidTextRepresentation):
            db.execute(call)
    db.execute("RESET ROLE")
    assert value(db, "SELECT count(*) FROM cronledger.jobs") == 1
