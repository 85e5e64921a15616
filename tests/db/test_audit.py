"""The audit trail: one row for each action of an operator, and none for what replicas do."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from cronledger import Client
from cronledger.ledger.audit_trail import OPERATOR_FUNCTIONS
from cronledger.ledger.migrate import migrate
from cronledger.ledger.refusals import LedgerError
from cronledger.ledger.reports import Reports
from cronledger.rules.model import Job
from cronledger.sources.apply import apply
from tests.db.support.commands import command, read
from tests.db.support.engine import Ledger, Runner
from tests.db.support.rows import Db, channel, connected, execution, insert, job, now, runner, value

NO_ACTIONS = {
    "enqueue": "input of programs", "enqueue_many": "input of programs",
    "take_results": "of consumers", "record_refusal": "the record itself",
    "begin_verification": "recorded by its end", "end_verification": "recorded as verify",
    "maintain_partitions": "of replicas",
    "observe_start": "a report of another scheduler", "observe_end": "a report",
    "report_by_token": "a report", "report_token_job": "a look-up of the page",
    "begin_page_session": "a sign-in on the page", "end_page_session": "a sign-out",
    "save_view": "of the person alone", "delete_view": "of the person alone",
}  # fmt: skip
"""Functions for operators that are no actions, and why."""


def actions(db: Db, condition: str = "true") -> list[dict[str, Any]]:
    text = f"SELECT * FROM cronledger.audit WHERE {condition} ORDER BY at, id"
    return db.execute(text.encode()).fetchall()


def last(db: Db) -> dict[str, Any]:
    return actions(db)[-1]


def added(db: Db, *statements: str) -> list[dict[str, Any]]:
    """Execute statements; return the rows that they added."""
    before = len(actions(db))
    for statement in statements:
        db.execute(statement.encode())
    return actions(db)[before:]


HASH = "encode(sha256(random()::text::bytea), 'hex')"
HOUR = "ARRAY[date_trunc('hour', cronledger.db_now()) - interval '3 h']"
TOMORROW = "cronledger.db_now() + interval '1 day'"
CALLS = {
    "adopt": "'other', (cronledger.db_now() + interval '2 days')::date",
    "trigger": "'job'",
    "backfill": f"'job', {HOUR}",
    "pause": "'job', 'why'",
    "resume": "'job'",
    "skip": "'job', 'tomorrow 03:00', 'why'",
    "unskip": "{skip}",
    "retire": "'job'",
    "pause_queue": "'default', 'why'",
    "plan_pause": f"'why', {TOMORROW}",
    "change_pause": "{pause}, reason => 'r' || random()",
    "end_pause": "{pause}",
    "resume_queue": "'default'",
    "pause_all": "'why'",
    "resume_all": "",
    "limit_queue": "'default', 3",
    "retire_host": "'web9'",
    "set_retention": "'80 days'",
    "create_report_token": f"{HASH}, 'seen'",
    "revoke_report_token": "{token}",
    "cancel": "{pending}",
    "retry": "{failed}",
    "cancel_many": "ARRAY[{pending}]",
    "retry_many": "ARRAY[{failed}]",
    "redact_revisions": "'job', ARRAY['target', 'command']",
    "redact": "{failed}",
    "accept_violation": "'missing', 'job', cronledger.db_now(), 'why'",
    "withdraw_acceptance": "{acceptance}",
    "refuse_database": "",
    "rename_source": "(SELECT source FROM cronledger.source_status), 's' || random()",
    "set_calendar": "'de', jsonb_build_object('2099-01-01', 'Day ' || random()), '2099-12-31'",
    "pause_channel": "'ops'",
    "resume_channel": "'ops'",
    "test_channel": "'ops'",
    "retry_delivery": "{delivery}",
    "accept_database": "true",
}
"""The arguments of a call of each operator function, with numbers that `prepared` returns."""


def prepared(db: Db) -> dict[str, object]:
    """Create what operator functions act on, and return its numbers."""
    channel(db)
    job(db, "seen", handler="observed", target="{}")
    for statement in (
        "INSERT INTO cronledger.sources (name) VALUES ('s')",
        "INSERT INTO cronledger.hosts (name, present_through) VALUES ('web9', '2020-01-01')",
        "UPDATE cronledger.jobs SET observed = true WHERE name = 'other'",
    ):
        db.execute(statement)
    made = {
        "pause": f"plan_pause('why', {TOMORROW})",
        "skip": "skip('job', 'tomorrow', 'why')",
        "token": f"create_report_token({HASH}, 'seen')",
        "acceptance": "accept_violation('missing', 'job', cronledger.db_now(), 'known')",
    }
    return {
        "failed": execution(db, "FAILED")["id"],
        "pending": execution(db, "PENDING", "other")["id"],
        "delivery": insert(db, "deliveries", channel="ops", status="FAILED", due_at=None)["id"],
        **{name: value(db, f"SELECT cronledger.{call}") for name, call in made.items()},
    }


@pytest.fixture
def filled(db: Db) -> Db:
    """Two jobs with a history of a day, in two queues."""
    job(db, max_attempts=3)
    job(db, "other", queue="slow")
    db.execute(
        "UPDATE cronledger.schedules SET planned_through = date_trunc('hour', cronledger.db_now())"
    )
    return db


def test_every_operator_function_is_known(db: Db) -> None:
    rows = db.execute(
        "SELECT DISTINCT p.proname FROM cronledger.decided_grants() g"
        " JOIN pg_proc p ON p.proname = g.object"
        " WHERE g.role = 'cronledger_operator' AND g.privilege = 'EXECUTE'"
        " AND p.pronamespace IN ('cronledger'::regnamespace, 'cronledger_internal'::regnamespace)"
        " AND p.provolatile = 'v'"
    ).fetchall()
    granted = {row["proname"] for row in rows} - NO_ACTIONS.keys()
    assert granted == CALLS.keys(), "call it, and see that it leaves one row of the audit trail"
    assert set(value(db, "SELECT cronledger_internal.operator_verbs()")) == granted
    assert granted == OPERATOR_FUNCTIONS


def test_each_function_leaves_one_row(filled: Db) -> None:
    for function, arguments in CALLS.items():
        with filled.transaction(force_rollback=True):
            given = arguments.format_map(prepared(filled))
            if function == "accept_database":
                filled.execute("UPDATE cronledger.identity SET database_oid = 0")
            call = ", ".join(x for x in (given, "requested_by => 'ann'") if x)
            for _ in range(2):  # also if there is nothing left to do
                (row,) = added(filled, f"SELECT * FROM cronledger.{function}({call})")
                assert (row["verb"], row["requested_by"]) == (function, "ann")
                assert row["session_user"] == value(filled, "SELECT session_user")
                assert row["outcome"] != "refused"
            assert value(filled, "SELECT count(*) FROM cronledger.actions_in_progress") == 0


def test_a_row_has_its_object_reason_revision_and_outcome(filled: Db) -> None:
    filled.execute("SELECT cronledger.pause('job', 'stock count', requested_by => 'ann')")
    row = last(filled)
    assert (row["object_kind"], row["object"], row["job_name"]) == ("job", "job", "job")
    assert (row["reason"], row["revision"], row["outcome"]) == ("stock count", 2, "done")
    filled.execute("SELECT cronledger.pause('job', 'still', requested_by => 'ann')")
    assert (last(filled)["reason"], last(filled)["revision"]) == ("still", None)
    for outcome in ("done", "unchanged"):
        filled.execute("SELECT cronledger.resume('job')")
        assert last(filled)["outcome"] == outcome
    made = value(filled, """SELECT cronledger.trigger('job', payload => '{"key": "secret"}')""")
    assert (last(filled)["execution_ids"], "secret" in str(last(filled))) == ([made], False)
    filled.execute("SELECT cronledger.pause_all('night')")
    assert last(filled)["arguments"] == {"queues": ["default", "slow"]}
    number = execution(filled, "FAILED")["id"]
    assert value(filled, f"SELECT cronledger.retry({number}, true)") == "retried"
    row = last(filled)
    assert (row["object_kind"], row["object"], row["job_name"]) == ("execution", str(number), "job")
    assert (row["outcome"], row["arguments"]) == ("retried", {"force": True})


def test_a_retry_keeps_who_requested_the_execution(filled: Db) -> None:
    number = execution(filled, "FAILED", trigger="manual", requested_by="ann")["id"]
    filled.execute(f"SELECT cronledger.retry({number}, requested_by => 'bob')".encode())
    assert value(filled, "SELECT requested_by FROM cronledger.executions") == "ann"
    assert last(filled)["requested_by"] == "bob"


def test_a_backfill_names_what_it_retried(filled: Db) -> None:
    hour = value(filled, "SELECT date_trunc('hour', cronledger.db_now()) - interval '2 h'")
    number = execution(filled, "FAILED", plan_time=hour)["id"]
    call = (
        f"SELECT * FROM cronledger.backfill('job', ARRAY['{hour}'::timestamptz,"
        f" '{hour - timedelta(hours=1)}'], reprocess => 'failed')"
    )
    (row,) = added(filled, call)
    assert (row["execution_ids"], row["arguments"]["made"]) == ([number], 1)
    assert (row["arguments"]["retried"], row["arguments"]["plan_times"]) == (1, 2)


EDITS: list[tuple[str, str, list[str] | None]] = [
    ("UPDATE {jobs} SET schedule = '@daily' WHERE name = 'job'", "edit", ["schedule"]),
    ("UPDATE {jobs} SET description = 'x' WHERE name = 'job'", "edit", ["description"]),
    (
        "UPDATE {jobs} SET paused_at = now(), paused_by = 'x' WHERE name = 'job'",
        "pause", ["paused_at", "paused_by"],
    ),
    ("UPDATE {jobs} SET retired_at = now() WHERE name = 'job'", "retire", ["retired_at"]),
    ("INSERT INTO {jobs} (name, handler) VALUES ('new', 'external')", "add", None),
    ("DELETE FROM {jobs} WHERE name = 'job'", "delete", None),
]  # fmt: skip


def test_edits_by_sql_are_recorded(filled: Db) -> None:
    filled.execute("UPDATE cronledger.jobs SET schedule = '@weekly', edited_by = 'ann'")
    for edit, verb, fields in EDITS:
        with filled.transaction(force_rollback=True):
            (row,) = added(filled, edit.format(jobs="cronledger.jobs"))
            assert (row["verb"], row["object_kind"], row["outcome"]) == (verb, "job", "done")
            assert row["arguments"].get("fields") == fields
            assert row["requested_by"] == value(filled, "SELECT session_user")
            made = value(filled, f"SELECT max(revision) FROM cronledger.job_revisions"
                                 f" WHERE job_name = '{row['job_name']}'")  # fmt: skip
            assert row["revision"] == (None if fields == ["description"] else made)


def test_each_edited_job_has_a_row_and_an_unchanged_one_has_none(filled: Db) -> None:
    rows = added(filled, "UPDATE cronledger.jobs SET timezone = 'Asia/Tokyo'")
    assert sorted(row["object"] for row in rows) == ["job", "other"]
    unchanged = ("timezone = 'Asia/Tokyo', deploy = 7", "spec_error = 'broken'")
    assert added(filled, *(f"UPDATE cronledger.jobs SET {sets}" for sets in unchanged)) == []


def test_edits_of_queues_are_recorded(filled: Db) -> None:
    filled.execute("SELECT cronledger.pause_queue('default', 'why', requested_by => 'ann')")
    for edit, verb in (
        ("INSERT INTO cronledger.queues (name, max_running) VALUES ('a', 2)", "limit_queue"),
        ("INSERT INTO cronledger.queues (name, paused_at) VALUES ('b', now())", "pause_queue"),
        ("UPDATE cronledger.queues SET max_running = 9 WHERE name = 'default'", "limit_queue"),
        (
            "UPDATE cronledger.queues SET paused_at = NULL, paused_by = NULL, paused_reason = NULL"
            " WHERE name = 'default'", "resume_queue",
        ),
        ("DELETE FROM cronledger.queues WHERE name = 'default'", "delete_queue"),
    ):  # fmt: skip
        (row,) = added(filled, edit)
        assert (row["verb"], row["object_kind"]) == (verb, "queue")


def test_a_function_hides_no_edit_beside_it_or_after_its_failure(filled: Db) -> None:
    edit = """UPDATE cronledger.jobs SET target = '{"command": ["x"]}' WHERE name = 'job'"""
    pause, resume = "SELECT cronledger.pause('job')", "SELECT cronledger.resume('job')"
    with filled.transaction():
        rows = added(filled, pause, edit, resume)
    assert [row["verb"] for row in rows] == ["pause", "edit", "resume"]
    with filled.transaction():
        with pytest.raises(errors.InvalidParameterValue), filled.transaction():
            filled.execute("SELECT cronledger.limit_queue('default', 0)")
        rows = added(filled, "UPDATE cronledger.jobs SET schedule = '@daily' WHERE name = 'job'")
    assert [row["verb"] for row in rows] == ["edit"]


def test_rows_are_never_changed(filled: Db) -> None:
    filled.execute("SELECT cronledger.pause('job')")
    for change in (
        "UPDATE {} SET requested_by = 'x'", "DELETE FROM {}", "TRUNCATE {}",
        "DELETE FROM {} WHERE false",
    ):  # fmt: skip
        with pytest.raises(errors.RestrictViolation, match="rows are only added to the audit"):
            filled.execute(change.format("cronledger.operator_actions").encode())


async def test_replicas_write_none(ledger: Ledger, db: Db, one: Runner) -> None:
    ledger.job("minutely", schedule="* * * * *", max_attempts=2)
    ledger.job("napping", schedule="* * * * *")
    ledger.values("SELECT pause('napping', until => db_now() + interval '30 s')")
    ledger.values("SELECT enqueue('minutely')")
    before = len(actions(db))
    for _ in range(3):
        ledger.travel(by="1m")
        for lease in await one.settle():
            await one.finish(lease)
        await one.sweep()
        await one.repair()
    assert ledger.one("SELECT paused_at FROM jobs WHERE name = 'napping'") is None
    assert len(actions(db)) == before


def test_apply_is_recorded_job_by_job(ledger: Ledger, db: Db) -> None:
    def made(name: str, **policies: Any) -> Job:
        values = {"name": name, "handler": "command", "target": {"command": ["true"]}}
        return Job.model_validate(values | policies)

    apply(ledger.url, [made("a"), made("b")], source="file", by="ann", deploy=1)
    apply(ledger.url, [made("a", grace="5m")], source="file", by="bob", deploy=2)
    apply(ledger.url, [made("a", grace="5m"), made("b")], source="file", by="bob", deploy=3)
    assert [
        (row["verb"], row["object"], row["requested_by"], row["revision"]) for row in actions(db)
    ] == [
        ("add", "a", "ann", 1), ("add", "b", "ann", 1), ("edit", "a", "bob", 2),
        ("retire", "b", "bob", 2), ("return", "b", "bob", 3),
    ]  # fmt: skip
    assert actions(db)[2]["arguments"] == {"fields": ["grace"], "source": "file", "deploy": 2}


REFUSED = {
    ("trigger", "job", "--payload", '"secret"'): (1, "trigger", "job", "job"),
    ("executions", "retry", "{success}"): (1, "retry", "{success}", "job"),
    ("queues", "limit", "gone", "3"): (2, "limit_queue", "gone", None),
}


def test_the_command_line_records_refusals(filled: Db, database_url: str) -> None:
    filled.execute("SELECT cronledger.pause('job', 'stock count')")
    success = execution(filled, "SUCCESS")["id"]
    for arguments, (exit_code, verb, name, job_name) in REFUSED.items():
        before = len(actions(filled))
        given = [text.format(success=success) for text in arguments]
        said = command(database_url, *given, exit_code=exit_code)
        (row,) = actions(filled)[before:]
        assert (row["verb"], row["outcome"], row["job_name"]) == (verb, "refused", job_name)
        assert row["object"] == name.format(success=success)
        assert row["error"] in said.stderr
        assert row["requested_by"].count("@") == 1
        assert "secret" not in str(row)


def test_a_refusal_has_no_payload_also_if_it_is_a_text(filled: Db) -> None:
    filled.execute(
        "SELECT cronledger.record_refusal('trigger', %s, 'it is paused')",
        [Jsonb({"job": "job", "scope_id": "global", "payload": "secret"})],
    )
    assert last(filled)["arguments"] == {"scope_id": "global"}


def test_a_refusal_on_a_connection_of_the_caller(filled: Db, database_url: str) -> None:
    before = len(actions(filled))
    with connected(database_url) as own:
        with pytest.raises(LedgerError):
            Client(connection=own).pause("gone")
        assert [row["outcome"] for row in actions(filled)[before:]] == ["refused"]
        with pytest.raises(LedgerError), own.transaction():
            Client(connection=own).pause("gone")
    # The transaction of the caller cannot write it.
    assert len(actions(filled)) == before + 1


def test_the_command_lists_and_filters(filled: Db, database_url: str) -> None:
    filled.execute("""UPDATE cronledger.jobs SET labels = '{"team": "data"}' WHERE name = 'job'""")
    filled.execute("SELECT cronledger.pause('job', 'night', requested_by => 'ann')")
    filled.execute("SELECT cronledger.pause('other', requested_by => 'bob')")
    filled.execute("SELECT cronledger.pause_queue('slow', requested_by => 'ann')")

    def listed(*options: str) -> list[tuple[str, str]]:
        return [(row["verb"], row["object"]) for row in read(database_url, "audit", *options)]

    pauses = [("pause_queue", "slow"), ("pause", "other"), ("pause", "job")]
    assert listed("--limit", "3") == pauses
    assert listed("--by", "ann") == [pauses[0], pauses[2]]
    assert listed("--verb", "pause") == pauses[1:]
    assert listed("--job", "other", "--since", "1h") == [pauses[1], ("add", "other")]
    assert listed("--label", "team=data", "--verb", "pause") == [pauses[2]]
    table = command(database_url, "audit", "--by", "ann", "--verb", "pause").stdout.splitlines()
    assert table[0].split()[:3] == ["AT", "BY", "VERB"]
    assert "night" in table[1]
    unknown = command(database_url, "audit", "--job", "gone", exit_code=2)
    assert "job 'gone' does not exist" in unknown.stderr


async def test_records_of_runners_are_kept_for_the_retention(
    db: Db, one: Runner, database_url: str
) -> None:
    for name, days in (("old", 100), ("former", 40), ("recent", 0.5)):
        seen = now(db) - timedelta(days=days)
        runner(
            db, name, stale_after=seen, heartbeat_at=seen, started_at=seen - timedelta(hours=1),
            handlers=["tests:work"], diagnostics='{"executions": []}', queues=[name],
        )  # fmt: skip
    await one.repair()
    kept = db.execute(
        "SELECT id, diagnostics = '{}' AND handlers = '{}' AS small FROM cronledger.runners"
        " WHERE id <> 'r1' ORDER BY id"
    ).fetchall()
    assert [(row["id"], row["small"]) for row in kept] == [("former", True), ("recent", False)]
    assert "runners" not in value(db, "SELECT cronledger_internal.left_behind(100)")
    assert {"recent", "former"} <= {row["id"] for row in read(database_url, "runners", "--all")}
    with pytest.raises(errors.NoDataFound):
        db.execute("SELECT cronledger.pause_queue('former')")
    # `why` finds the runner of a month ago.
    at = value(
        db, "SELECT heartbeat_at - interval '30 min' FROM cronledger.runners WHERE id = 'former'"
    )

    with psycopg.connect(database_url, autocommit=True) as connection:
        assert Reports.over(connection, "cronledger").signs_of_life(at)["alive"] == ["former"]


def test_a_migration_waits_for_no_action_on_queues(filled: Db, database_url: str) -> None:
    """A new trigger would wait for it, and the action for the migration: a deadlock."""
    filled.execute("DELETE FROM cronledger.schema_migrations WHERE phase = 'repeated'")
    with psycopg.connect(database_url, options="-c lock_timeout=1s") as other:
        other.execute("SELECT cronledger.pause_queue('default')")
        with pytest.MonkeyPatch.context() as variables:
            variables.setenv("PGOPTIONS", "-c lock_timeout=20s")
            migrate(database_url)
        other.execute("SELECT cronledger.limit_queue('default', 3)")


def test_an_operator_cannot_act_without_a_row(filled: Db) -> None:
    with filled.transaction(force_rollback=True):
        filled.execute("SET LOCAL ROLE cronledger_operator")
        with pytest.raises(errors.InsufficientPrivilege):
            filled.execute("SELECT cronledger.claim('job', 'ghost')")
    with filled.transaction():
        filled.execute("SET LOCAL ROLE cronledger_operator")
        begin = "SELECT cronledger_internal.begin_verification('job', NULL, NULL, '1', 'ann')"
        run = value(filled, begin)
        end = (
            "SELECT cronledger_internal.end_verification(%s, 'finished', NULL, NULL, NULL, 1, 2, 3,"
            " 4, 0, 0, 1, '{}')"
        )
        assert value(filled, end, run)
        assert not value(filled, end, run)
    row = last(filled)
    assert (row["verb"], row["object_kind"], row["object"]) == ("verify", "job", "job")
    assert (row["requested_by"], row["outcome"]) == ("ann", "done")
    assert row["arguments"] == {
        "verification": run, "outcome": "finished", "violations": 0, "accepted": 1,
    }  # fmt: skip
    assert len(actions(filled, "verb = 'verify'")) == 1
