"""F28: the `sql` handler: statements and their terminal write in one transaction."""

from typing import Any, LiteralString

import psycopg
import pytest

from tests.db.support.whole_replica import Whole
from tests.db.test_progress import FOUND, reported
from tests.waiting import eventually


@pytest.fixture
def whole(whole: Whole) -> Whole:
    whole.rows("CREATE TABLE done (what text, by text)")
    return whole


def sql(whole: Whole, name: str, statement: str, **policies: Any) -> None:
    whole.declare(name, "sql", {"sql": statement}, **policies)


@pytest.mark.long
async def test_a_script_commits_with_its_success(whole: Whole) -> None:
    script = """
        INSERT INTO done SELECT '50 % of ' || g, 'x' FROM generate_series(1, 3) g;
        UPDATE done SET by = current_setting('cronledger.execution_id', true);
        DO $$ BEGIN RAISE NOTICE 'half way'; END $$;
        SELECT * FROM done; DELETE FROM done WHERE what LIKE '%3'
    """
    sql(whole, "script", script)
    sql(whole, "looks", "SELECT 1")
    async with whole.replica():
        row = await whole.run("script")
        looks = await whole.run("looks")
    assert (row["status"], row["rows_affected"], row["error_msg"]) == ("SUCCESS", 7, None)
    assert row["output"] == "NOTICE: half way\nINSERT 0 3\nUPDATE 3\nDO\nSELECT 3\nDELETE 1\n"
    assert (looks["status"], looks["rows_affected"]) == ("SUCCESS", None)
    by = {r["by"] for r in whole.rows("SELECT by FROM done")}
    assert by == {str(row["id"])}
    # The same transaction wrote the rows and the terminal status.
    assert whole.one(
        "SELECT count(DISTINCT x) FROM (SELECT xmin::text AS x FROM done"
        " UNION SELECT xmin::text FROM cronledger.executions WHERE id = %s) t", row["id"],
    ) == 1  # fmt: skip


async def test_sql_learns_of_its_execution(whole: Whole) -> None:
    names = (
        "execution_id", "job", "scope_kind", "scope_id", "plan_time", "trigger", "attempt",
        "payload",
    )  # fmt: skip
    values = ", ".join(f"('{n}', current_setting('cronledger.{n}', true))" for n in names)
    sql(whole, "told", f"INSERT INTO done VALUES {values}")
    async with whole.replica():
        row = await whole.run("told", {"n": 1})
    told = {r["what"]: r["by"] for r in whole.rows("SELECT * FROM done")}
    assert told.pop("plan_time") == row["plan_time"].isoformat()
    assert told == {
        "execution_id": str(row["id"]), "job": "told", "scope_kind": "global",
        "scope_id": "global", "trigger": "manual", "attempt": "1", "payload": '{"n": 1}',
    }  # fmt: skip


@pytest.mark.long
async def test_an_error_rolls_back_and_is_retried_as_the_job_says(whole: Whole) -> None:
    script = "INSERT INTO done VALUES ('never', 'x'); SELECT 1 / 0"
    sql(whole, "fails", script, max_attempts=2, retry_backoff=["0s"])
    sql(whole, "typo", "SELEC 1")
    whole.rows("CREATE TABLE once (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    sql(whole, "fails_at_commit", "INSERT INTO once VALUES (1), (1)")
    async with whole.replica():
        row, typo = await whole.run("fails"), await whole.run("typo")
        at_commit = await whole.run("fails_at_commit")
    assert (row["status"], row["attempt"], row["error_code"]) == ("FAILED", 2, "handler_error")
    assert row["error_msg"].startswith("SQLSTATE 22012 DivisionByZero: division by zero")
    assert typo["error_msg"].startswith("SQLSTATE 42601 SyntaxError: syntax error at")
    assert (at_commit["status"], "once_id_key" in at_commit["error_msg"]) == ("FAILED", True)
    assert whole.rows("SELECT what FROM done UNION ALL SELECT id::text FROM once") == []


@pytest.mark.long
async def test_run_timeout_and_cancel_stop_the_statement(whole: Whole) -> None:
    script = "INSERT INTO done VALUES ('never', 'x'); SELECT pg_sleep(60)"
    sql(whole, "slow", script, run_timeout="1s")
    sql(whole, "long", script)
    sleeping: LiteralString = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE query LIKE '%pg_sleep(60)' AND state = 'active' AND datname = current_database()"
    )
    async with whole.replica():
        slow = await whole.run("slow")
        assert (slow["status"], slow["error_code"]) == ("FAILED", "timeout")
        long = await whole.trigger("long")
        await eventually("it sleeps", lambda: whole.one(sleeping) == 1)
        assert whole.one("SELECT cronledger.cancel(%s)", long) == "requested"
        assert (await whole.end(long))["status"] == "CANCELLED"
        await eventually("nothing sleeps any more", lambda: whole.one(sleeping) == 0)
    assert whole.rows("SELECT * FROM done") == []


@pytest.mark.own_database
@pytest.mark.long
async def test_statement_timeout_is_run_timeout(whole: Whole) -> None:
    name = whole.one("SELECT current_database()")
    whole.db.execute(f"ALTER DATABASE {name} SET statement_timeout = '9min'".encode())
    shows = "INSERT INTO done SELECT current_setting('statement_timeout')"
    sql(whole, "shows", shows)
    sql(whole, "unlimited", shows, run_timeout="none")
    async with whole.replica():
        await whole.run("shows")
        await whole.run("unlimited")
    assert [row["what"] for row in whole.rows("SELECT what FROM done")] == ["1h", "0"]


@pytest.mark.long
async def test_a_script_that_commits_is_found_out(whole: Whole) -> None:
    script = "INSERT INTO done VALUES ('kept', 'x'); COMMIT; INSERT INTO done VALUES ('too', 'x')"
    sql(whole, "commits", script, max_attempts=3, retry_backoff=["0s"])
    sql(whole, "lowered", "SET LOCAL ROLE pg_read_all_data; SELECT count(*) FROM done")
    async with whole.replica():
        row = await whole.run("commits")
        lowered = await whole.run("lowered")
    assert (row["status"], row["attempt"]) == ("FAILED", 1)
    assert row["error_code"] == "transaction_ended"
    assert "because the runner commits" in row["error_msg"]
    assert lowered["status"] == "SUCCESS"  # a role of the script does not stop its end


@pytest.mark.long
async def test_a_notice_reports_progress_while_its_transaction_is_open_F124(whole: Whole) -> None:
    gate = "SELECT pg_advisory_xact_lock(124)"
    script = """
        DO $$ BEGIN
            FOR n IN 1..40 LOOP
                INSERT INTO done VALUES (n, 'x');
                RAISE NOTICE '::cronledger progress %/100 password=secret', n;
            END LOOP;
            PERFORM pg_advisory_xact_lock(124);
            RAISE NOTICE '::cronledger progress many';
        END $$;
        SELECT 1 / 0
    """
    sql(whole, "long", script)
    with psycopg.connect(whole.url) as held:
        held.execute(gate)
        async with whole.replica():
            execution = await whole.trigger("long")
            found = await reported(whole, execution, 40)
            assert found == {"done": 40, "total": 100, "text": "password=***"}
            assert whole.rows("SELECT * FROM done") == []
            held.commit()
            row = await whole.end(execution)
    assert row["output"] == "NOTICE: ::cronledger progress many\n", "another form is output"
    assert whole.rows(FOUND, execution) == [found], "a rollback keeps the report"
