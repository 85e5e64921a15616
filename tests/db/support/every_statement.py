"""Every statement of `sql/` and every function that people and workers call, with its parameters.

Parameters have their values by name, from the rows of a ledger of tests/bench/dataset.py. A
statement with an unknown parameter is refused, so that a new one gets a value or a reason here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import cronledger
from cronledger.ledger import queries, session_settings
from cronledger.ledger.statements import Statements
from tests.bench import plans

BATCH = 100
SETTINGS: Mapping[str, Mapping[str, str]] = {
    name: {**session_settings.COMMAND, "plan_cache_mode": "force_custom_plan", "enable_sort": "off"}
    for name in ("metrics", "web")
}
"""Those of packages whose transactions are not those of commands."""
GROUP = "00000000-0000-0000-0000-000000000001"
WORKER = "worker"
"""The external job of `MORE`."""

MORE: Sequence[LiteralString] = (
    "INSERT INTO cronledger.hosts (name, present_through) VALUES ('gone', '2020-01-01')",
    """INSERT INTO cronledger.jobs (name, handler, target, queue, overlap, scope_kind, max_attempts,
           allow_stale_reentry)
       VALUES ('worker', 'external', '{}', 'workers', 'allow', 'tenant', 3, true)""",
    "SELECT FROM cronledger_internal.set_scopes('worker', 'tenant',"
    " ARRAY(SELECT 's' || n FROM generate_series(1, 100) n))",
    """INSERT INTO cronledger.runners (id, host, pid, version, state, queues, slots, stale_after)
       SELECT 'runner-' || n, 'host', n, '0', 'running', '{default}', 10,
              cronledger.db_now() + interval '1 h' FROM generate_series(0, 3) n""",
    """INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status,
           trigger, revision, queue, due_at, attempt, max_attempts, runner_id, lease_token,
           heartbeat_at, stale_after, started_at)
       SELECT 'worker', 'tenant', 's' || 1 + n % 100, t.at, 'RUNNING', 'enqueue', 1, 'workers',
              t.at, 1, 3, 'external', gen_random_uuid(), t.at, t.at + interval '1 h', t.at
       FROM generate_series(1, 9000) n,
            LATERAL (SELECT cronledger.db_now() - interval '1 ms' * n) t(at)""",
    """INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status,
           trigger, revision, queue, due_at, attempt, max_attempts, next_attempt_at, group_id)
       SELECT 'worker', 'tenant', 's' || 1 + n % 100, t.at, 'PENDING', 'enqueue', 1, 'workers',
              t.at, 0, 3, t.at, '00000000-0000-0000-0000-000000000001'
       FROM generate_series(1, 1000) n,
            LATERAL (SELECT cronledger.db_now() - interval '1 min' - interval '1 ms' * n) t(at)""",
    """UPDATE cronledger.executions SET changed_xact = pg_current_xact_id()
       WHERE status IN ('SUCCESS', 'FAILED')
         AND plan_time > cronledger.db_now() - interval '1 day'""",
    """INSERT INTO cronledger.skips (job_name, scope_kind, scope_id, from_plan_time,
           through_plan_time, count, reason, revision, blocked_by)
       SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time + interval '1 s',
              e.plan_time + interval '1 s', 1, 'overlap', 1, e.id
       FROM cronledger.executions e WHERE e.id % 20 = 0""",
    """INSERT INTO cronledger.deadline_breaches (job_name, scope_kind, scope_id, plan_time, kind,
           execution_id, revision, deadline, month, breached_at, closed_at, look_at)
       SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, 'finish_by', e.id, 1, e.due_at,
              date_trunc('month', e.plan_time)::date, e.due_at,
              CASE WHEN e.id % 3 > 0 THEN e.due_at + interval '1 h' END,
              CASE WHEN e.id % 3 = 0 THEN e.due_at END
       FROM cronledger.executions e WHERE e.id % 50 = 0 AND e.job_name <> 'worker'""",
    """INSERT INTO cronledger.deadlines (job_name, scope_kind, scope_id, plan_time, kind, revision,
           deadline, month, look_at)
       SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, 'finish_by', 1, e.due_at,
              date_trunc('month', e.plan_time)::date, e.due_at
       FROM cronledger.executions e WHERE e.id % 50 = 1""",
    """INSERT INTO cronledger.deadline_cursors (job_name, through, next_at)
       SELECT j.name, cronledger.db_now() - interval '1 min', cronledger.db_now()
       FROM cronledger.jobs j WHERE j.name < 'job-00040'""",
    """INSERT INTO cronledger.tracked_states (channel, event, job_name, scope_kind, scope_id, count,
           since, execution_id)
       SELECT DISTINCT ON (e.job_name, e.scope_kind, e.scope_id) 'ops', 'failed', e.job_name,
              e.scope_kind, e.scope_id, 1, e.finished_at, e.id
       FROM cronledger.executions e WHERE e.status = 'FAILED'""",
    """INSERT INTO cronledger.raised_alerts (at, event, kind, channel, since, count, job_name,
           scope_kind, scope_id, execution_id, plan_time, summary, details)
       SELECT e.finished_at, 'failed', 'opened', 'ops', e.finished_at, 1, e.job_name, e.scope_kind,
              e.scope_id, e.id, e.plan_time, 'failed', '{}'
       FROM cronledger.executions e WHERE e.status = 'FAILED'""",
    """INSERT INTO cronledger.operator_actions (at, "session_user", requested_by, verb, object_kind,
           object, job_name, execution_ids, outcome)
       SELECT e.due_at, 'someone', 'someone', 'retry', 'execution', e.id::text, e.job_name,
              ARRAY[e.id], 'retried'
       FROM cronledger.executions e WHERE e.id % 50 = 2""",
    """UPDATE cronledger.jobs SET notify = '[{"channel": "ops", "on": ["failed", "recovered",
           "late", "skipped", "deadline"]}]', finish_by = '1h' WHERE name BETWEEN 'job-00100' AND
           'job-00140'""",
)
"""A job of workers, whose executions make 10,000 RUNNING in all; then skips, deadlines, alerts and
actions of all executions."""

LEFT_OUT = {
    # Measured by tests/bench/plans.py, with the claims, leases and polls that they belong to.
    "advance_schedules", "check_in", "claim_look", "finish_executions", "heartbeat_leases",
    "next_due", "read_leases", "read_revisions", "read_traceparents", "rearm_left_behind",
    "rearm_unblocked", "record_skips", "release_executions", "request_replacement",
    "resume_paused", "sweep_stale", "try_claim_new",
    # Read and write rows by the key of a small table, or none.
    "accept_database", "accept_violation", "add_deadlines", "advance_deadlines", "add_turn",
    "change_pause", "end_pause", "plan_pause",
    "begin_page_session", "save_view", "delete_view",
    "pause_channel", "resume_channel", "retry_delivery", "test_channel",
    "call_begin_verification", "call_end_verification",
    "call_record_refusal", "db_clock", "db_now", "decided_grants", "end_page_session",
    "estimated_quantile", "grant_roles", "list_upstream_results", "lock_jobs",
    "lock_source", "page_session", "read_calendars",
    "record_refusal", "record_scopes_asked", "refuse_database", "rename_source", "set_calendar",
    "set_calendars", "set_scopes", "set_spec_errors", "sleep_until", "stop_runner", "take_name",
    "take_turn", "unskip", "withdraw_acceptance",
    # Call `cancel` and `retry`, which are measured, for each of at most 1,000 executions.
    "cancel_many", "retry_many",
    # Psycopg reads the placeholders of format() as its own; examine_partitions reads the same.
    "examine_horizon",
    # Call a function that is measured.
    "begin_pauses", "call_enqueue_many", "call_enqueue_task", "call_pause", "call_progress",
    "call_trigger", "settle_pauses",
    # Write and delete chunks of output by the keys of executions, as heartbeat_leases.
    "write_output", "drop_output",
    # Probe the reports of one scope by key. Only jobs that another scheduler runs have any.
    "observe_start", "observe_end", "record_reports", "call_report_runs", "hand_over", "adopt",
    "call_preview_adopt", "preview_adopt",
    "create_report_token", "report_by_token", "report_token_job", "revoke_report_token",
    # The check of a row of executions, which reads nothing.
    "may_be_execution",
    # Compares definitions of jobs, which are its parameter.
    "compare_source", "list_upstreams", "plan_pending", "upsert_jobs",
    # Probe `gates` and executions by key; tests/db/test_query_plans.py measures them with gates.
    "lock_gates", "read_upstreams", "settle_gates", "wake_gates", "wake_left_gates", "next_gate",
    "postpone_executions",
}  # fmt: skip
"""Statements and functions without a case, by the reason."""

NULLS = (
    "after_ids", "after_kinds", "before_at", "before_job", "before_kind", "before_scope_id",
    "before_scope_kind", "before_time", "calendar", "channel", "code", "deploy", "due_at",
    "due_from", "among", "ended_before", "error", "force", "group_id", "key", "label", "labels",
    "message", "only", "outcomes", "owner", "payload", "reason", "runner", "search", "source",
    "state", "status", "statuses", "traceparent", "verb", "watermark",
)  # fmt: skip
"""Parameters of which NULL restricts nothing."""

OWN: Mapping[str, Mapping[str, object]] = {
    "list_saved_views": {"person": "nobody"},
    "claim_deliveries": {"runner": "runner-0"},
    "compare_channels": {"channels": "{}"},
    "upsert_channels": {"channels": "{}"},
    "record_deploy": {"host": None},
    "list_ends_since": {"before": "infinity"},
    "list_shown_jobs": {"failing": "{}", "overdue": "{}", "sort": "next", "descending": False,
                        "skipped": 0, "max_scopes": 20},
    "list_found_scopes": {"text": "s1", "max_of_job": 3},
    "list_strip_cells": {"max_rows": [100] * BATCH},
    "mark_changed_hours": {"after": "0"},
    "progress": {"done": 40},
    "maintain_partitions": {"width": "7 days"},
    "show_covering_window": {"plan_time": "2020-01-01"},
    "show_unfinished": {"before": "infinity"},
    "skip": {"plan_time": "2090-01-01", "reason": "because", "scope_kind": None, "scope_id": None},
    "claim_next": {"n": BATCH},
    "not_ready": {"after": "1 min"},
    "deadline_revisions": {"since": ["2020-01-01"] * BATCH},
    "enqueue_many": {
        "keys": [f"k{n}" for n in range(BATCH)],
        "scope_ids": [f"s{1 + n}" for n in range(BATCH)],
    },
}  # fmt: skip
"""Values of one statement, where its parameter has another type than elsewhere."""

_MANY = """
SELECT array_agg(e.job_name) AS jobs, array_agg(e.scope_kind) AS kinds,
       array_agg(e.scope_id) AS scopes, array_agg(e.plan_time) AS plans,
       array_agg(e.lease_token) AS tokens, array_agg(e.id) AS ids, min(e.plan_time) AS first,
       max(e.plan_time) AS last, cronledger.db_now() AS now
FROM (SELECT * FROM cronledger.executions WHERE status = 'RUNNING' AND job_name <> 'worker'
      ORDER BY plan_time DESC LIMIT %s) e
"""
_ONE = """
SELECT e.job_name AS job, e.scope_kind AS kind, e.scope_id AS scope, e.plan_time AS plan, e.id,
       e.lease_token AS token
FROM cronledger.executions e
WHERE e.status = %s AND (e.job_name = 'worker') = %s AND e.next_attempt_at IS NULL
ORDER BY e.plan_time DESC LIMIT 1
"""
OF_HELD = (
    "assert_lease", "cancel", "fail", "finish", "heartbeat", "not_ready", "progress", "release",
    "upstream",
)  # fmt: skip
HELD_OR_ENDED = (("RUNNING", True), ("FAILED", False))
_FUNCTIONS = """
SELECT p.proname AS name, p.proargnames[:p.pronargs - p.pronargdefaults] AS required,
       p.proargnames[:p.pronargs] AS arguments
FROM pg_proc p
WHERE p.pronamespace = 'cronledger'::regnamespace AND p.prorettype <> 'trigger'::regtype
ORDER BY p.oid
"""
_VIEWS = "SELECT viewname FROM pg_views WHERE schemaname = 'cronledger' ORDER BY 1"
_NOBODY: dict[str, Any] = {"job": "", "kind": "", "scope": "", "plan": None, "id": 0, "token": None}


@dataclass(frozen=True, slots=True)
class Case:
    """A statement with its parameters, and with the settings of the program that sends it."""

    name: str
    statement: plans.Sent
    settings: Mapping[str, str]


def cases(c: psycopg.Connection[Any], *, views: bool = True) -> Iterator[Case]:
    """Yield each statement, function and view, with parameters from the rows of the ledger.

    `views` False: without views. Raises KeyError for one with an unknown parameter.
    """
    values = _values(c)
    root = Path(cronledger.__file__).parent
    for file in sorted(root.glob("*/sql/*.sql")):
        package, name = file.parts[-3], file.stem
        if name not in LEFT_OUT:
            text = queries.text(name, "cronledger", f"cronledger.{package}")
            settings = SETTINGS.get(package, session_settings.COMMAND)
            if package == "ledger" and hasattr(Statements, name):
                settings = session_settings.STEP
            yield _case(f"{package}/{name}", text, {**values, **OWN.get(name, {})}, settings)
    held, ended = (_of_worker(_row(c, _ONE, *which)) for which in HELD_OR_ENDED)
    with c.cursor(row_factory=dict_row) as cursor:
        functions = cursor.execute(_FUNCTIONS).fetchall()
    for function in functions:
        name, arguments = function["name"], function["arguments"] or []
        if name not in LEFT_OUT:
            own = OWN.get(name, {})
            required = function["required"] or []
            given = [
                a for a in arguments if a in required or a in own or a in ("scope_kind", "scope_id")
            ]
            text = queries.function_call(name, tuple(given), "cronledger").decode()
            of_worker = held if name in OF_HELD else ended
            yield _case(f"{name}()", text, {**values, **of_worker, **own}, session_settings.VALUES)

    for (view,) in c.execute(_VIEWS).fetchall() if views else ():
        yield Case(
            view, plans.Sent(f"SELECT * FROM cronledger.{view}", {}), session_settings.VALUES
        )


def _case(name: str, text: str, values: Mapping[str, object], settings: Mapping[str, str]) -> Case:
    used = dict.fromkeys(re.findall(r"%\((\w+)\)s", text))
    return Case(name, plans.Sent(text, {key: values[key] for key in used}), settings)


def _values(c: psycopg.Connection[Any]) -> dict[str, Any]:
    """Return the values of parameters by name."""
    many, one = _row(c, _MANY, BATCH), _row(c, _ONE, "SUCCESS", False)
    now = many["now"]
    day = now - timedelta(days=1)
    arrays = {name: [] if value is None else value for name, value in many.items()}
    jobs = arrays["jobs"]
    return dict.fromkeys(NULLS) | arrays | one | {
        "attempt": 1, "number": 0,
        "after": day, "after_kind": "", "after_scope": "", "at": now, "before": 2**62,
        "buckets": 60, "by": "runner", "calendars": [], "days": 90,
        "max_dates": 5, "delivery": None, "changes": [], "channels": ["ops"] * len(jobs),
        "digest": "", "drops": False, "end": now, "execution_id": one["id"], "final": False,
        "grace": timedelta(minutes=1), "graces": [timedelta(0)] * len(jobs),
        "host": "gone", "hosts": ["gone"] * len(jobs), "lanes": 20,
        "last_job": one["job"], "last_kind": "\uffff", "last_scope": "\uffff", "ledger": None,
        "max_executions": 100, "max_failures": 100, "max_jobs": 100, "max_of_scope": 100,
        "max_read": 10_000, "max_rows": 100, "max_scopes": 10, "month": now, "most": 2_000,
        "most_scopes": 10_000, "names": sorted({*jobs}), "numbers": [1] * len(jobs),
        "of_kinds": ["execution", "skip"], "only_open": True, "over": True, "overdue": [],
        "planned_from": day,
        "plan_times": [day.replace(microsecond=0)], "prefix": "", "queue": "default",
        "reprocess": "none",
        "requested_by": "someone", "retire_after": timedelta(days=7), "result": None,
        "revision": 1, "revoked": True, "revisions": [1] * len(jobs),
        "rows": 0,
        "scope_id": one["scope"], "scope_kind": one["kind"], "since": day, "start": day,
        "through": now, "throughs": [day] * len(jobs), "triggers": ["schedule"],
        "trusted_since": day, "until": now, "width": timedelta(minutes=15), "with_former": True,
        "with_retired": True,
    }  # fmt: skip


def _of_worker(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of arguments of functions about an execution, or about the worker's job."""
    return {
        "execution_id": one["id"], "id": one["id"], "token": one["token"], "runner": "external",
        "queue": "workers", "scope_kind": "tenant", "scope_id": "s1", "job": WORKER,
        "code": "broken", "message": "broken", "result": Jsonb({"rows": 17}), "watermark": 1,
        "group_id": GROUP, "reason": "because", "keep": timedelta(days=85), "path": ["payload"],
        "from_plan_time": "2020-01-01", "before_plan_time": "infinity",
    }  # fmt: skip


def _row(c: psycopg.Connection[Any], query: LiteralString, *params: object) -> dict[str, Any]:
    """Return the only row; without one, the values of no execution."""
    with c.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, params).fetchone() or _NOBODY
