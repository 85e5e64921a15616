"""The audit trail: one row for each action of an operator, and none for what replicas do."""

from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from cronledger import Client
from cronledger.ledger import queries
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


def pause(db: Db) -> object:
    call = "SELECT cronledger.plan_pause('why', cronledger.db_now() + interval '1 day')"
    return value(db, call)


def other_database(db: Db) -> None:
    db.execute("UPDATE cronledger.identity SET database_oid = 0")


def accepted(db: Db) -> object:
    call = "SELECT cronledger.accept_violation('missing', 'job', cronledger.db_now(), 'known')"
    return value(db, call)


def failed(db: Db) -> object:
    return execution(db, "FAILED")["id"]


def pending(db: Db) -> object:
    return execution(db, "PENDING")["id"]


def planned_skip(db: Db) -> object:
    return value(db, "SELECT cronledger.skip('job', 'tomorrow', 'why')")


def next_plan_time(db: Db) -> object:
    hour = "date_trunc('hour', cronledger.db_now()) + interval '1 hour'"
    return value(db, f"SELECT replace(({hour})::text, ' ', 'T')")


def other_source(db: Db) -> None:
    db.execute("INSERT INTO cronledger.sources (name) VALUES ('s')")


def absent_host(db: Db) -> None:
    db.execute("DELETE FROM cronledger.hosts")
    db.execute("INSERT INTO cronledger.hosts (name, present_through) VALUES ('web9', '2020-01-01')")


def observed(db: Db) -> None:
    db.execute("DELETE FROM cronledger.jobs WHERE name = 'seen'")
    job(db, "seen", handler="observed", target="{}")


def report_token(db: Db) -> object:
    observed(db)
    hashed = "encode(sha256(random()::text::bytea), 'hex')"
    return value(db, f"SELECT cronledger.create_report_token({hashed}, 'seen')")


def failed_delivery(db: Db) -> object:
    return insert(db, "deliveries", channel="ops", status="FAILED", due_at=None)["id"]


def adoptable(db: Db) -> object:
    """A time at which the job `other` moves to replicas."""
    db.execute("UPDATE cronledger.jobs SET observed = true WHERE name = 'other'")
    return value(db, "SELECT (cronledger.db_now() + interval '2 days')::date::text")


Prepare = Callable[[Db], object]
HOUR = "ARRAY[date_trunc('hour', cronledger.db_now()) - interval '3 h']"
CALLS: dict[str, tuple[Prepare | None, str]] = {
    "adopt": (adoptable, "'other', '{0}'"),
    "trigger": (None, "'job'"),
    "backfill": (failed, f"'job', {HOUR}"),
    "pause": (None, "'job', 'why'"),
    "resume": (None, "'job'"),
    "skip": (None, "'job', 'tomorrow', 'why'"),
    "unskip": (planned_skip, "{0}"),
    "retire": (None, "'job'"),
    "pause_queue": (None, "'default', 'why'"),
    "plan_pause": (None, "'why', cronledger.db_now() + interval '1 day'"),
    "change_pause": (pause, "{0}, reason => 'r' || random()"),
    "end_pause": (pause, "{0}"),
    "resume_queue": (None, "'default'"),
    "pause_all": (None, "'why'"),
    "resume_all": (None, ""),
    "limit_queue": (None, "'default', 3"),
    "retire_host": (absent_host, "'web9'"),
    "set_retention": (None, "'80 days'"),
    "create_report_token": (observed, "encode(sha256(random()::text::bytea), 'hex'), 'seen'"),
    "revoke_report_token": (report_token, "{0}"),
    "cancel": (pending, "{0}"),
    "retry": (failed, "{0}"),
    "cancel_many": (pending, "ARRAY[{0}]"),
    "retry_many": (failed, "ARRAY[{0}]"),
    "redact_revisions": (None, "'job', ARRAY['target', 'command']"),
    "redact": (failed, "{0}"),
    "accept_violation": (None, "'missing', 'job', cronledger.db_now(), 'why'"),
    "withdraw_acceptance": (accepted, "{0}"),
    "refuse_database": (None, ""),
    "rename_source": (
        other_source, "(SELECT source FROM cronledger.source_status), 's' || random()",
    ),
    "set_calendar": (
        None, "'de', jsonb_build_object('2099-01-01', 'Day ' || random()), '2099-12-31'",
    ),
    "pause_channel": (channel, "'ops'"),
    "resume_channel": (channel, "'ops'"),
    "test_channel": (channel, "'ops'"),
    "retry_delivery": (failed_delivery, "{0}"),
    "accept_database": (other_database, "true"),
}  # fmt: skip
"""What makes a call of each operator function possible, and its arguments."""


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
    for function, (prepare, arguments) in CALLS.items():
        with filled.transaction(force_rollback=True):
            given = prepare(filled) if prepare is not None else None
            call = ", ".join(x for x in (arguments.format(given), "requested_by => 'ann'") if x)
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
    filled.execute("SELECT cronledger.resume('job')")
    filled.execute("SELECT cronledger.resume('job')")
    assert [row["outcome"] for row in actions(filled, "verb = 'resume'")] == ["done", "unchanged"]
    made = value(filled, """SELECT cronledger.trigger('job', payload => '{"key": "secret"}')""")
    assert (last(filled)["execution_ids"], "secret" in str(last(filled))) == ([made], False)
    filled.execute("SELECT cronledger.limit_queue('default', 3)")
    assert last(filled)["arguments"] == {"max_running": 3}
    filled.execute("SELECT cronledger.pause_all('night')")
    assert last(filled)["arguments"] == {"queues": ["default", "slow"]}
    number = failed(filled)
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
    ("UPDATE {jobs} SET source = 'file' WHERE name = 'job'", "edit", ["source"]),
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
            assert row["revision"] == (None if fields in (["description"], ["source"]) else made)


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


def test_apply_is_recorded_job_by_job(ledger: Ledger, db: Db, database_url: str) -> None:
    def made(name: str, **policies: Any) -> Job:
        values = {"name": name, "handler": "command", "target": {"command": ["true"]}}
        return Job.model_validate(values | policies)

    apply(database_url, [made("a"), made("b")], source="file", by="ann", deploy=1)
    apply(database_url, [made("a", grace="5m")], source="file", by="bob", deploy=2)
    apply(database_url, [made("a", grace="5m"), made("b")], source="file", by="bob", deploy=3)
    assert [
        (row["verb"], row["object"], row["requested_by"], row["revision"]) for row in actions(db)
    ] == [
        ("add", "a", "ann", 1), ("add", "b", "ann", 1), ("edit", "a", "bob", 2),
        ("retire", "b", "bob", 2), ("return", "b", "bob", 3),
    ]  # fmt: skip
    assert actions(db)[2]["arguments"] == {"fields": ["grace"], "source": "file", "deploy": 2}


REFUSED = {
    ("jobs", "pause", "gone"): (2, "pause", "gone", "gone"),
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
    assert listed("--since", "2030-01-01") == [] or now(filled).year >= 2030
    table = command(database_url, "audit", "--by", "ann", "--verb", "pause").stdout.splitlines()
    assert table[0].split()[:3] == ["AT", "BY", "VERB"]
    assert "night" in table[1]
    unknown = command(database_url, "audit", "--job", "gone", exit_code=2)
    assert "job 'gone' does not exist" in unknown.stderr


def test_a_list_searches_only_until_it_has_its_rows(db: Db) -> None:
    params: dict[str, Any] = dict.fromkeys(
        ("since", "by", "verb", "job", "owner", "label", "labels", "before", "before_at",
         "max_read")
    )  # fmt: skip
    text = queries.text("list_audit", "cronledger")
    with db.transaction():
        db.execute("SET LOCAL enable_seqscan = off")
        found = db.execute(
            f"EXPLAIN {text}".encode(), params | {"max_executions": 10, "max_rows": 5}
        ).fetchall()
    assert "Index Scan Backward" in str(found) and "Sort" not in str(found)


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
    shown = {row["id"] for row in read(database_url, "runners")}
    assert shown & {"recent", "former"} == {"recent"}
    assert {"recent", "former"} <= {row["id"] for row in read(database_url, "runners", "--all")}
    queues = db.execute("SELECT name FROM cronledger.queue_status").fetchall()
    assert {"recent", "former"} & {row["name"] for row in queues} == {"recent"}
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


def test_operators_write_the_trail_only_through_functions(db: Db) -> None:
    for role, right, table in product(
        ("viewer", "operator", "runner"), ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"),
        ("operator_actions", "actions_in_progress"),
    ):  # fmt: skip
        given = (f"cronledger_{role}", f"cronledger.{table}", right)
        assert value(db, "SELECT has_table_privilege(%s, %s, %s)", *given) is False


def lost(db: Db) -> None:
    """The job `job` should have fired twice, and did not."""
    db.execute(
        "UPDATE cronledger.job_revisions SET effective_from = effective_from - interval '3 h'"
    )
    db.execute(
        "UPDATE cronledger.schedules SET created_at = planned_through - interval '2 h'"
        " WHERE job_name = 'job'"
    )


COMMANDS: dict[str, tuple[Prepare | None, str]] = {
    "accept_violation": (lost, "verify job --accept known"),
    "adopt": (adoptable, "adopt other --at {0}"),
    "trigger": (None, "trigger job"),
    "backfill": (None, "backfill job --from 3h --to 1h"),
    "pause": (None, "jobs pause job --reason night"),
    "resume": (None, "jobs resume job"),
    "skip": (next_plan_time, "skip job {0} --reason stocktaking"),
    "unskip": (next_plan_time, "skip job {0} --undo"),
    "redact_revisions": (None, "jobs redact job payload token"),
    "plan_pause": (None, "pauses plan --queue other --reason night --from 1d"),
    "change_pause": (pause, "pauses change {0} --reason night"),
    "end_pause": (pause, "pauses end {0}"),
    "pause_queue": (None, "queues pause default"),
    "resume_queue": (None, "queues resume default"),
    "pause_all": (None, "queues pause --all"),
    "resume_all": (None, "queues resume --all"),
    "limit_queue": (None, "queues limit default 3"),
    "retire_host": (absent_host, "hosts retire web9"),
    "set_retention": (None, "retention set 80d"),
    "create_report_token": (observed, "report-tokens create seen"),
    "revoke_report_token": (report_token, "report-tokens revoke {0}"),
    "cancel": (pending, "executions cancel {0}"),
    "retry": (failed, "executions retry {0}"),
    "cancel_many": (pending, "executions cancel {0} 1"),
    "retry_many": (failed, "executions retry {0} 1"),
    "redact": (failed, "executions redact {0}"),
    "retire": (None, "jobs remove job"),
    "rename_source": (other_source, "sources rename s t"),
    "pause_channel": (channel, "channels pause ops"),
    "resume_channel": (None, "channels resume ops"),
    "retry_delivery": (failed_delivery, "channels retry {0}"),
    "refuse_database": (None, "refuse-database"),
    "accept_database": (other_database, "accept-database --catch-up"),
}
"""The command that calls each operator function, in an order in which none prevents another."""


@pytest.mark.long
def test_each_command_leaves_one_row(filled: Db, database_url: str) -> None:
    assert CALLS.keys() - COMMANDS.keys() == {
        "withdraw_acceptance",  # for SQL only
        "test_channel",  # which waits for a replica
        "set_calendar",  # an apply calls it
    }
    for function, (prepare, line) in COMMANDS.items():
        given = prepare(filled) if prepare is not None else None
        before = len(actions(filled))
        command(database_url, *line.format(given).split())
        (row,) = [x for x in actions(filled)[before:] if x["verb"] != "verify"]  # the run itself
        assert (row["verb"], row["requested_by"].count("@")) == (function, 1)


def test_an_operator_cannot_act_without_a_row(filled: Db) -> None:
    claim = "SELECT cronledger.claim('job', 'ghost')"
    with filled.transaction(force_rollback=True):
        filled.execute("SET LOCAL ROLE cronledger_operator")
        with pytest.raises(errors.InsufficientPrivilege):
            filled.execute(claim)
    with filled.transaction(force_rollback=True):
        filled.execute("SET LOCAL ROLE cronledger_runner")
        filled.execute(claim)
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
