"""The plans of the hot statements as the product runs them; `make bench` has the full size."""

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cronledger.engine.maintenance.check_in import MOST_EXAMINED
from cronledger.ledger import migrate, statements
from cronledger.ledger.rows import GateVerdict
from cronledger.rules.gates import Verdict
from cronledger.rules.model import ExecutionKey, ScopeKey
from tests.bench import dataset, plans
from tests.bench.plans import LONG_AGO
from tests.database import Databases
from tests.db.support.late_rows import rows_come_later, without_autovacuum

pytestmark = pytest.mark.own_database  # plans depend on sizes and statistics

STATEMENTS = Path(statements.__file__).parent / "sql"
BATCH = 100
SIZE = dataset.Size(400, 20_000, 30_000, 400, 4_000, 1_000, 400)
PAGES = 20
"""A tree that has grown by a level, in each partition and each queue."""
RUNNING = "job_name_scope_kind_scope_id_plan_time_idx"
AGAIN = "job_name_next_attempt_at_queue_idx"


@pytest.fixture(scope="module")
def filled_database(databases: Databases) -> Iterator[str]:
    """The name of a small ledger of the benchmark's shape, which tests copy."""
    name = databases.create(databases.template())
    with psycopg.connect(databases.url(name), autocommit=True) as c:
        dataset.fill(c, SIZE)
    yield name
    databases.drop(name)


@pytest.fixture
def filled(databases: Databases, filled_database: str) -> Iterator[psycopg.Connection]:
    """A connection to a copy of that ledger."""
    name = databases.create(filled_database)
    with psycopg.connect(databases.url(name), autocommit=True) as c:
        yield c
    databases.drop(name)


def _fill(c: psycopg.Connection) -> None:
    dataset.fill(c, SIZE, analyzed=False)


def _index_kinds(measured: plans.Measured) -> set[str]:
    """Names of the indexes used, without the partitions'."""
    return {
        name.split("_", 2)[2] if name.startswith("executions_p") else name
        for name in measured.indexes
    }


@pytest.mark.long
def test_hot_statements_read_the_claimed_rows_and_no_others(filled: psycopg.Connection) -> None:
    verdicts = {(v.name, v.mode): v for v in plans.measure(filled, [BATCH])}

    faults = {key: v.faults for key, v in verdicts.items() if key[1] == "generic" and v.faults}
    assert faults == {}
    assert len(verdicts) > 40
    used = {name: _index_kinds(v.measured) for (name, m), v in verdicts.items() if m == "generic"}
    assert used["lock_due_schedules"] >= {"schedules_due"}
    assert "schedules_key" not in used["lock_due_schedules"]
    for name in (
        "heartbeat_leases",
        "finish_executions",
        "release_executions",
        "try_claim_existing",
    ):
        assert used[name] == {"pkey"}, name
    assert used["read_leases"] == used["read_traceparents"] == {"pkey"}
    assert used["read_running"] == {RUNNING}
    assert used["advance_schedules"] == set()  # by ctid
    assert AGAIN in used["lock_due_existing"]
    # Of 14 partitions with rows and those ahead, a statement with bounds opens those in between.
    assert verdicts["read_leases", "generic"].measured.partitions <= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "state",
    ["kept", "planned_anew", "analyzed_while_empty", "analyzed", "repaired", "new_week_repaired"],
)
def test_plans_made_on_an_empty_ledger_serve_a_full_one(database_url: str, state: str) -> None:
    """A replica keeps its plans until autovacuum has come by: a minute of a fresh installation,
    and of each Monday's partition. The server may also have it plan anew before that, at any time:
    a backend that is behind with the invalidations of a busy server drops all of its plans."""
    with (
        psycopg.connect(database_url, autocommit=True) as other,
        psycopg.connect(database_url, autocommit=True) as replica,
    ):
        with rows_come_later(other, state, _fill) as tables:
            early = plans.EarlyPlans(replica)
            if state == "analyzed_while_empty":
                other.execute(f"ANALYZE {tables}".encode())
        if state == "analyzed":
            other.execute(f"ANALYZE {tables}".encode())
        if state == "planned_anew":
            replica.execute("DISCARD PLANS")
        verdicts = early.measure(BATCH)
    faults = {v.name: v.faults for v in verdicts if v.faults}
    assert faults == {}
    assert len(verdicts) > 30


@pytest.mark.long
def test_parked_schedules_cost_a_poll_one_probe_for_each_job(filled: psycopg.Connection) -> None:
    """And for a few jobs only: beyond that the sweeper searches, not the check-in."""
    few = 20

    def costs() -> list[plans.Measured]:
        statements = (
            plans.poll(filled),
            plans.nested(filled, "left_behind", most=MOST_EXAMINED),
            plans.nested(filled, "left_behind", most=few),
        )
        with filled.transaction(force_rollback=True):
            return [plans.explain(filled, statement, "generic") for statement in statements]

    without_autovacuum(filled)
    filled.execute("UPDATE cronledger.schedules SET parked = 'ended' WHERE parked = 'limit'")
    filled.execute("VACUUM ANALYZE cronledger.schedules")
    due, all_examined, few_examined = costs()
    count = filled.execute(
        """UPDATE cronledger.schedules SET parked = 'no_runner', next_due_at = NULL
           WHERE job_name >= 'job-00200' AND parked IS NULL"""
    ).rowcount
    filled.execute("VACUUM cronledger.schedules")
    assert count > 5_000
    due_now, all_examined_now, few_examined_now = costs()
    jobs = SIZE.jobs - 200
    assert not [one for one in costs() if one.seq_scans]
    assert due_now.buffers <= due.buffers + PAGES
    assert all_examined_now.buffers <= all_examined.buffers + 20 * jobs < count
    assert few_examined_now.buffers <= few_examined.buffers + 20 * few


@pytest.mark.slow
def test_no_list_of_a_caller_is_searched_for_each_row(filled: psycopg.Connection) -> None:
    """In a generic plan `<> ALL ($1)` and, where no index serves, `= ANY ($1)` have no hash."""
    texts = {file.stem: file.read_text() for file in STATEMENTS.glob("*.sql")}
    texts |= dict(
        filled.execute(
            "SELECT proname, prosrc FROM pg_proc"
            " WHERE pronamespace::regnamespace::text ~ '^cronledger'"
        ).fetchall()
    )
    linear = re.compile(r"\w\.\w+ <> ALL \((?!ARRAY)|= ANY \((of_functions|ids)\)")
    # act_on_many has a list of at most 1,000 ids, and claim looks at the labels of one execution.
    bounded = {"act_on_many", "claim"}
    assert {name for name, text in texts.items() if linear.search(text)} == bounded
    able = {
        "of_queues": list(plans.QUEUES), "of_kinds": ["python"], "of_functions": ["f"] * 9,
        "of_labels": ["host=bench"],
        "sql_commands": False, "excluded_jobs": ["j"] * 9, "max_rows": 9,
    }  # fmt: skip
    for function, more in (("lock_due_existing", {}), ("lock_stale", {"trusted_since": LONG_AGO})):
        statement = plans.nested(filled, function, **able, **more)
        with filled.transaction(force_rollback=True):
            assert plans.plan(filled, statement, "generic").count("hashed SubPlan") >= 2


@pytest.mark.slow
def test_many_woken_schedules_cost_a_claim_its_share_of_them(filled: psycopg.Connection) -> None:
    excluded = ["job-00399"]
    able: dict[str, Any] = {
        "of_queues": list(plans.QUEUES), "excluded_jobs": excluded, "max_rows": BATCH
    }  # fmt: skip
    of_queues: dict[str, Any] = {
        "queues": plans.QUEUES, "excluded_jobs": excluded, "due_from": None
    }  # fmt: skip
    sent = {
        "lock_due_schedules": plans.nested(
            filled, "lock_due_schedules", **able, of_host="bench", ahead=timedelta(0), due_from=None
        ),
        "lock_woken_schedules": plans.nested(filled, "lock_woken_schedules", **able),
        **plans.guards(filled, "claim_look"),
        "next_due": plans.sent(
            lambda s, c: s.next_due(c, since=plans.LONG_AGO, labels=[], **of_queues)
        ),
    }

    def costs() -> dict[tuple[str, str], plans.Measured]:
        found = {}
        for name, mode in product(sent, plans.MODES):
            with filled.transaction(force_rollback=True):
                found[name, mode] = plans.explain(filled, sent[name], mode)
        return found

    # Beside autovacuum of any table, the VACUUM below would leave the dead rows where they are.
    without_autovacuum(filled)
    before = costs()
    filled.execute(
        """UPDATE cronledger.schedules SET woken = true, parked = NULL,
               next_due_at = cronledger.db_now() - interval '1 h'
           WHERE job_name <= 'job-00001' OR job_name > 'job-00100'"""
    )
    filled.execute("VACUUM cronledger.schedules")
    woken = costs()
    with psycopg.connect(filled.info.dsn) as other:
        other.execute("SELECT FROM cronledger.schedules WHERE woken FOR UPDATE")
        locked = costs()
    for key, one in [*woken.items(), *locked.items()]:
        assert not one.seq_scans, key
        assert one.buffers < before[key].buffers + 60 * BATCH, key
        assert one.removed <= before[key].removed + 10 * BATCH, key


OF_TENANTS = """
INSERT INTO cronledger.schedules (job_name, scope_kind, scope_id, queue, planned_through,
    planned_revision, next_plan_time, next_due_at)
SELECT 'tenants', 'tenant', i::text, 'default', n, 1, n, n + interval '1 min' * (i - 20)
FROM generate_series(1, 15000) i, cronledger.db_now() n
"""
"""Of which 20 are due."""
OF_HOSTS = (
    """INSERT INTO cronledger.jobs (name, schedule, handler, target, scope_kind, every)
       SELECT 'job-' || i, '@daily', 'python', '{"python": "f"}', 'host', '{role=web}'
       FROM generate_series(1, 150) i""",
    """INSERT INTO cronledger.hosts (name, present_from, present_through)
       SELECT 'web' || i, n, n + interval '1 h' * (i - 5)
       FROM generate_series(1, 40) i, cronledger.db_now() n""",
    """INSERT INTO cronledger.schedules (job_name, scope_kind, scope_id, queue, planned_through,
           planned_revision, next_plan_time, next_due_at, parked)
       SELECT 'job-' || i, 'host', h.name, 'default', n, 1, d.at,
              CASE WHEN i > 75 THEN d.at END, CASE WHEN i <= 75 THEN 'no_runner' END
       FROM generate_series(1, 150) i, cronledger.hosts h, cronledger.db_now() n,
            LATERAL (SELECT n + interval '1 day' * (i - 90.5) AS at) d""",
)
"""Of 40 hosts 5 are absent or about to be. Each has 75 parked schedules, and 15 that are due."""


@pytest.mark.long
@pytest.mark.parametrize("state", ["never_analyzed", "analyzed_while_empty", "analyzed"])
def test_no_schedules_of_other_hosts_are_read(database_url: str, state: str) -> None:
    """Whatever the statistics; analyzed: before the first host came."""
    with psycopg.connect(database_url, autocommit=True) as c:
        tables = ", ".join(without_autovacuum(c))
        if state == "analyzed_while_empty":
            c.execute(f"ANALYZE {tables}".encode())
        c.execute(OF_TENANTS)
        if state == "analyzed":
            c.execute(f"ANALYZE {tables}".encode())
        for insert in OF_HOSTS:
            c.execute(insert)
        absent = "SELECT FROM cronledger_internal.absent_schedules(%(most)s)"
        locked = plans.nested(
            c, "lock_due_schedules", of_queues=["default"], of_host="web9", excluded_jobs=[],
            max_rows=BATCH, ahead=timedelta(0), due_from=None,
        )  # fmt: skip
        sent = ((plans.Sent(absent, {"most": MOST_EXAMINED}), 5 * (75 + 15)), (locked, 20 + 15))
        for (statement, rows), mode in product(sent, plans.MODES):
            with c.transaction(force_rollback=True):
                measured = plans.explain(c, statement, mode)
            assert measured.rows == rows
            assert not measured.seq_scans
            # Removed are hosts that are present, and jobs with every.
            assert measured.removed <= 40 + 150, measured
            assert measured.buffers < 8 * rows, measured


def test_no_function_is_called_once_for_each_column_of_its_result() -> None:
    """`(function()).*` calls it so; in FROM it is called once."""
    files = [*STATEMENTS.glob("*.sql"), *migrate.directory().rglob("*.sql")]
    texts = {file.stem: re.sub("--.*", "", file.read_text()) for file in files}
    assert {name for name, text in texts.items() if re.search(r"\)\s*\.\s*\*", text)} == set()
    assert len(texts) > 100


SCOPES = 2_000


@pytest.fixture(scope="module")
def scoped(databases: Databases) -> Iterator[psycopg.Connection]:
    """A connection to a ledger of one job with many scopes, whose statistics are of a time when
    there were none. Tests leave the rows as they are."""
    name = databases.create(databases.template())
    with psycopg.connect(databases.url(name), autocommit=True) as c:
        c.execute("ANALYZE cronledger.schedules")
        c.execute(
            "INSERT INTO cronledger.jobs (name, schedule, handler, target, scope_kind) VALUES"
            """ ('job', '@daily', 'python', '{"python": "f"}', 'tenant')"""
        )
        c.execute(
            "SELECT FROM cronledger_internal.set_scopes('job', 'tenant', %s)", [_names(SCOPES)]
        )
        c.execute("VACUUM cronledger.schedules")
        yield c
    databases.drop(name)


def _names(count: int) -> list[str]:
    return [f"s{n:06}" for n in range(count)]


def test_a_list_of_scopes_is_compared_in_one_pass(scoped: psycopg.Connection) -> None:
    changes = plans.nested(
        scoped, "scope_changes", of_job="job", of_kind="tenant", ids=_names(SCOPES)
    )
    compare = plans.sent(lambda s, c: s.compare_scopes(c, "job", "tenant", "other"))
    for statement, mode in product((changes, compare), plans.MODES):
        with scoped.transaction(force_rollback=True):
            scoped.execute("SET LOCAL enable_nestloop = off")
            measured = plans.explain(scoped, statement, mode)
        assert not measured.seq_scans
        assert measured.indexes <= {"schedules_key", "jobs_pkey"}
        assert measured.buffers < 1.2 * SCOPES, statement.text
        assert measured.nested < 10, statement.text


def test_scopes_that_stay_are_neither_written_nor_locked(scoped: psycopg.Connection) -> None:
    with psycopg.connect(scoped.info.dsn, autocommit=True) as other, other.transaction():
        other.execute("SELECT FROM cronledger.schedules FOR UPDATE")
        scoped.execute("SET lock_timeout = '10s'")
        with scoped.transaction(force_rollback=True):
            found = scoped.execute(
                "SELECT appeared, returned, retired"
                " FROM cronledger_internal.set_scopes('job', 'tenant', %s)",
                [[*_names(SCOPES), "new"]],
            ).fetchone()
    assert found == (1, 0, 0)


@pytest.mark.long
def test_the_roll_up_and_the_alert_step_read_only_changed_executions(
    filled: psycopg.Connection,
) -> None:
    """By index, from a history that is much larger; the roll-up also those of their hours."""
    filled.execute(
        'UPDATE cronledger.jobs SET notify = \'[{"channel": "ops", "on": ["failed", "recovered",'
        ' "late", "skipped"]}]\' WHERE queue <> \'alerts\''
    )
    changed = filled.execute(
        "UPDATE cronledger.executions SET changed_xact = pg_current_xact_id(),"
        " finished_at = cronledger.db_now() WHERE status = 'SUCCESS' AND id % 500 = 0"
    ).rowcount
    of_their_hours = filled.execute(
        "SELECT count(*) FROM cronledger.executions e WHERE EXISTS ("
        " SELECT FROM cronledger.executions c WHERE c.changed_xact IS NOT NULL"
        " AND (c.job_name, c.scope_kind, c.scope_id) = (e.job_name, e.scope_kind, e.scope_id)"
        " AND date_trunc('hour', c.plan_time, 'UTC') = date_trunc('hour', e.plan_time, 'UTC'))"
    ).fetchone()
    assert changed > 50
    assert of_their_hours is not None
    with filled.transaction(force_rollback=True):
        assert changed <= _executions_read(filled, "raise_alerts(20000)") <= 3 * changed + 20
    with filled.transaction():
        marking = _executions_read(filled, "mark_changed_hours('0', 20000)")
        assert changed <= marking <= 2 * changed + 10
        rolling_up = _executions_read(filled, "roll_up_hours(20000)")
        assert rolling_up <= 2 * of_their_hours[0] + 10
    counted = filled.execute("SELECT count(*), sum(success) FROM cronledger.execution_hours")
    assert counted.fetchone() != (0, None)


def _executions_read(c: psycopg.Connection, call: str) -> int:
    """Return how many executions a function reads, by index alone."""
    counts = []
    for statement in ("SELECT", f"SELECT cronledger_internal.{call}"):
        c.execute(statement.encode())
        # What this session has read since its counters were last sent.
        counts += c.execute(
            "SELECT sum(seq_scan)::int, sum(idx_tup_fetch)::int FROM pg_stat_xact_user_tables"
            " WHERE schemaname = 'cronledger' AND relname LIKE 'executions%'"
        ).fetchall()
    (scans_before, before), (scans_after, after) = counts
    assert scans_after == scans_before
    read: int = after - before
    return read


GATED = (
    """INSERT INTO cronledger.jobs (name, schedule, queue, handler, target, scope_kind, requires)
       SELECT format('gated-%s', i), '*/5 * * * *', 'default', 'python', '{"python": "tests:work"}',
              'tenant', jsonb_build_array(jsonb_build_object('job', format('job-00%s', i)))
       FROM generate_series(200, 219) i""",
    """INSERT INTO cronledger.schedules (job_name, scope_kind, scope_id, queue, planned_through,
           planned_revision, next_plan_time, next_due_at)
       SELECT j.name, s.scope_kind, s.scope_id, j.queue, s.planned_through, 1,
              cronledger.db_now() + interval '1 day', cronledger.db_now() + interval '1 day'
       FROM cronledger.jobs j JOIN cronledger.schedules s ON s.job_name = j.requires #>> '{0,job}'
       WHERE j.name LIKE 'gated-%'""",
    """INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status,
           trigger, revision, queue, due_at, attempt, max_attempts, gated_at)
       SELECT s.job_name, s.scope_kind, s.scope_id, s.planned_through, 'PENDING', 'schedule', 1,
              s.queue, s.planned_through, 0, 1, s.planned_through
       FROM cronledger.schedules s WHERE s.job_name LIKE 'gated-%'""",
    """INSERT INTO cronledger.gates (job_name, scope_kind, scope_id, plan_time, check_at,
           upstream_job, upstream_kind, upstream_id, missing)
       SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time,
              CASE WHEN row_number() OVER (ORDER BY e.scope_id, e.job_name) <= 10
                   THEN cronledger.db_now() - interval '1 s' END,
              j.requires #>> '{0,job}', e.scope_kind, e.scope_id, 'it is not planned'
       FROM cronledger.executions e JOIN cronledger.jobs j ON j.name = e.job_name
       WHERE e.status = 'PENDING' AND e.next_attempt_at IS NULL""",
    "VACUUM ANALYZE cronledger.gates",
)
"""Jobs that require others, with 1,000 waiting executions, of which 10 gates are due."""


@pytest.mark.long
def test_a_gate_reads_a_bounded_number_of_blocks(filled: psycopg.Connection) -> None:
    """Neither all schedules, nor all executions, nor all gates. Replicas use generic plans."""
    for insert in GATED:
        filled.execute(insert)
    due = filled.execute(
        """SELECT job_name, scope_kind, scope_id, plan_time, upstream_job
           FROM cronledger.gates WHERE check_at IS NOT NULL"""
    ).fetchall()
    assert len(due) == 10
    keys = [ExecutionKey(*row[:4]) for row in due]
    required = [ScopeKey(row[4], row[1], row[2]) for row in due]
    asked = [(one, LONG_AGO, key.plan_time) for one, key in zip(required, keys, strict=True)]

    def settle(verdict: Verdict) -> plans.Sent:
        given = [GateVerdict(key, verdict, LONG_AGO, None, None, None) for key in keys]
        return plans.sent(lambda s, c: s.settle_gates(c, given))

    sent = {
        "lock_gates": plans.sent(lambda s, c: s.lock_gates(c, len(due))),
        "read_upstreams": plans.sent(lambda s, c: s.read_upstreams(c, asked)),
        "wake_gates": plans.sent(lambda s, c: s.wake_gates(c, required)),
        "next_gate": plans.sent(lambda s, c: s.next_gate(c)),
        "has_waiting": plans.sent(lambda s, c: s.has_waiting(c)),
        **{f"settle_gates {verdict}": settle(verdict) for verdict in Verdict},
    }
    found = {}
    for name, statement in sent.items():
        with filled.transaction(force_rollback=True):
            found[name] = plans.explain(filled, statement, "generic").buffers
    assert {name: blocks for name, blocks in found.items() if blocks > 60 * len(due)} == {}
