"""Query plans of the hot statements at full size, judged by what they read and not by the clock.

    python -m tests.bench.plans [--short] [--binaries DIR]

Every statement is the product's text with the parameters that `Statements` makes, in a transaction
that is rolled back, at batches of 1, 100 and 1,000, with a custom and with a generic plan (which is
what replicas use). Exit 1 when one reads `executions` or `schedules` without an index, or more per
claimed row than the limits.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, cast
from uuid import UUID, uuid4

import psycopg
from psycopg import ClientCursor
from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb
from tabulate import tabulate

from cronledger.engine.claiming.breadth import LARGEST_CLAIM
from cronledger.engine.maintenance.check_in import MOST_EXAMINED
from cronledger.ledger import session_settings
from cronledger.ledger.migrate import migrate
from cronledger.ledger.rows import Advance, Ending, LeaseKey, NewClaim, NewSkip
from cronledger.ledger.statements import Connection, Statements
from cronledger.rules.model import ExecutionKey, Parked, ScopeKey, SkipReason
from cronledger.rules.plans import Plan, ScheduleRow, Skip
from tests.bench import dataset
from tests.bench.server import Server, durable_server

BATCHES = (1, 100, LARGEST_CLAIM)
MODES = ("custom", "generic")
QUEUES = ("default", "reports", "mail", "full")
MOST_REMOVED = 10.0
MOST_BUFFERS = 40.0
# What a statement may read whatever its batch: its scans of waiting rows probe each partition for
# each job that has some, and the limit of each queue is counted over the RUNNING rows.
PROBES = 6
IN_FUNCTIONS = (
    "heartbeat_leases", "finish_executions", "release_executions", "rearm_unblocked",
)  # fmt: skip
"""Statements that only call a function of the same name."""
MANY_LINES = re.DOTALL | re.MULTILINE
LARGE = re.compile(r"^(executions|schedules)(_p\w+)?$")

# As step_transaction sets them; the timeout is ours.
PLANNING = tuple(f"{name} = '{value}'" for name, value in session_settings.STEP.items())

Call = Callable[[Statements, Connection], Any]
Run = Callable[[str, "Sent", str], "Measured"]
"""Runs a statement of that name, planned as the mode says."""
Cursor = ClientCursor[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One statement as it went out."""

    text: str
    params: Mapping[str, Any]


class _Recorder:
    """Stands for the connection: keeps what `Statements` would have sent."""

    def __init__(self) -> None:
        self.sent: Sent | None = None

    def cursor(self, **_: object) -> "_Recorder":
        return self

    async def execute(self, text: bytes, params: Mapping[str, Any] | None, **_: object) -> None:
        self.sent = Sent(text.decode(), params or {})


def sent(call: Call) -> Sent:
    recorder = _Recorder()
    asyncio.run(call(Statements(), cast("Connection", recorder)))
    assert recorder.sent is not None
    return recorder.sent


@dataclass(frozen=True, slots=True)
class Measured:
    """What one execution of a statement cost. `seq_scans`: of the large tables. `nested`: how often
    the inner side of a nested loop was begun."""

    ms: float
    rows: int
    buffers: int
    removed: int
    partitions: int
    seq_scans: Sequence[str]
    planning_ms: float
    indexes: frozenset[str]
    nested: int
    jit: bool


def explain(c: psycopg.Connection, statement: Sent, mode: str) -> Measured:
    """Run it in the transaction of `c`, planned as `mode` says, and undo it."""
    cursor = ClientCursor(c)
    cursor.execute("DEALLOCATE ALL")
    _set_planning(cursor, mode)
    prepare(cursor, "measured", statement)
    try:
        return _run(cursor, "measured", statement)
    finally:
        if c.info.transaction_status != TransactionStatus.INERROR:
            cursor.execute("DEALLOCATE measured")


def plan(c: psycopg.Connection, statement: Sent, mode: str) -> str:
    """Its plan as text; nothing is run."""
    cursor = ClientCursor(c)
    _set_planning(cursor, mode)
    prepare(cursor, "planned", statement)
    cursor.execute(f"EXPLAIN {execution(cursor, 'planned', statement)}".encode())
    lines = [line for (line,) in cursor.fetchall()]
    cursor.execute("DEALLOCATE planned")
    return "\n".join(lines)


def _set_planning(cursor: Cursor, mode: str) -> None:
    for setting in (*PLANNING, f"plan_cache_mode = force_{mode}_plan"):
        cursor.execute(f"SET LOCAL {setting}".encode())


def _one(c: psycopg.Connection, query: LiteralString, params: Any = None) -> tuple[Any, ...]:
    (row,) = c.execute(query, params, prepare=False).fetchall()
    return row


def _order(statement: Sent) -> list[str]:
    return list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement.text)))


def prepare(cursor: Cursor, name: str, statement: Sent) -> None:
    order = _order(statement)
    text = re.sub(r"%\((\w+)\)s", lambda m: f"${order.index(m[1]) + 1}", statement.text)
    cursor.execute(f"PREPARE {name} AS {text.replace('%%', '%')}".encode())


def execution(cursor: Cursor, name: str, statement: Sent) -> str:
    order = _order(statement)
    values = cursor.mogrify(", ".join(["%s"] * len(order)), [statement.params[x] for x in order])
    return f"EXECUTE {name} ({values})" if order else f"EXECUTE {name}"


def _run(cursor: Cursor, name: str, statement: Sent) -> Measured:
    """Run it twice, undo it, and return the run that read less.

    A session that is behind with the invalidations of a busy server reads the catalog once more.
    """
    run = execution(cursor, name, statement)
    runs = []
    for _ in range(2):
        with cursor.connection.transaction(force_rollback=True):
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON, TIMING OFF) {run}".encode())
            ((explained,),) = cursor.fetchall()
        runs.append(_measured(explained[0]))
    return min(runs, key=lambda measured: measured.buffers)


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the node at the top of a plan, and all nodes below it."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def _reads_a_whole_table(node: Mapping[str, Any]) -> bool:
    """Return whether the node scans a table of more than two pages. Of a smaller one, such as the
    partition of a week that has just begun, an index scan would read as much."""
    pages = node.get("Shared Hit Blocks", 0) + node.get("Shared Read Blocks", 0)
    return bool(node["Node Type"] == "Seq Scan" and pages > 2 * node["Actual Loops"])


def _measured(explained: Mapping[str, Any]) -> Measured:
    top = explained["Plan"]
    ran = [node for node in nodes(top) if node["Actual Loops"]]
    large = [node for node in ran if LARGE.match(node.get("Relation Name", ""))]
    removed = sum(
        node[key] * node["Actual Loops"]
        for node in ran
        for key in node
        if key.startswith("Rows Removed by") and key != "Rows Removed by Conflict Filter"
    )
    return Measured(
        ms=explained["Execution Time"],
        rows=int(top["Actual Rows"]),
        buffers=top["Shared Hit Blocks"] + top["Shared Read Blocks"],
        removed=round(removed),
        partitions=len({n["Relation Name"] for n in large if n["Relation Name"] != "schedules"}),
        seq_scans=sorted({n["Relation Name"] for n in large if _reads_a_whole_table(n)}),
        planning_ms=explained["Planning Time"],
        indexes=frozenset(n["Index Name"] for n in ran if "Index Name" in n),
        nested=sum(
            node["Plans"][1]["Actual Loops"] for node in ran if node["Node Type"] == "Nested Loop"
        ),
        jit="JIT" in explained,
    )


# -- what is sent ---------------------------------------------------------------------------------

ALWAYS = timedelta(seconds=60)
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the ledger to make parameters from."""

    now: datetime
    schedules: Sequence[ScheduleRow]
    running: Sequence[tuple[ExecutionKey, UUID, str]]


def read_rows(c: psycopg.Connection, most: int = LARGEST_CLAIM) -> Rows:
    """Due schedules, and leases of the current partition."""
    (now,) = _one(c, "SELECT cronledger.db_now()")
    due = c.execute(
        """SELECT job_name, scope_kind, scope_id, queue, planned_through, ctid::text
           FROM cronledger.schedules
           WHERE next_due_at <= cronledger.db_now() ORDER BY next_due_at LIMIT %s""", [most]
    ).fetchall()  # fmt: skip
    running = c.execute(
        """SELECT job_name, scope_kind, scope_id, plan_time, lease_token, queue
           FROM cronledger.executions
           WHERE status = 'RUNNING' AND plan_time > cronledger.db_now() - interval '1 h'
           ORDER BY id LIMIT %s""", [most]
    ).fetchall()  # fmt: skip
    return Rows(
        now,
        [ScheduleRow(ScopeKey(*row[:3]), row[3], row[4], 1, address=row[5]) for row in due],
        [(ExecutionKey(*row[:4]), row[4], row[5]) for row in running],
    )


def claims(rows: Rows, batch: int) -> dict[str, Call]:
    """The statements with which a claim writes."""
    due = rows.schedules[:batch]
    scopes = [row.key for row in due]
    jobs = sorted({key.job_name for key in scopes})
    soon = rows.now + timedelta(minutes=5)
    new = [
        NewClaim(
            ExecutionKey(*row.key, rows.now + timedelta(microseconds=7)), 1, row.queue, rows.now,
            '{"size": 3}', 3, uuid4(), ALWAYS, None,
        )
        for row in due
    ]  # fmt: skip
    missed = Skip(rows.now, rows.now, 1, SkipReason.MISSED, 1)
    skips = [NewSkip(key, missed, first=True) for key in scopes]
    advances = [
        Advance(
            row,
            Plan(rows.now, 1, soon, soon if n % 4 else None, None if n % 4 else Parked.WAITING),
            rows.now,
        )
        for n, row in enumerate(due)
    ]
    return {
        "read_revisions": lambda s, c: s.read_revisions(c, jobs, [1] * len(jobs)),
        "try_claim_new": lambda s, c: s.try_claim_new(c, "runner-0", new),
        "record_skips": lambda s, c: s.record_skips(c, skips),
        "advance_schedules": lambda s, c: s.advance_schedules(c, advances),
        "next_due": lambda s, c: s.next_due(
            c, queues=QUEUES, labels=["host=bench"], excluded_jobs=[], since=rows.now, due_from=None
        ),
    }


def looks(c: psycopg.Connection, rows: Rows, batch: int) -> dict[str, Sent]:
    """The statements of claim_look that lock and read; those of claim_due: see `again`."""
    due = rows.schedules[:batch]
    jobs, queues = sorted({row.key.job_name for row in due}), sorted({row.queue for row in due})
    (locked,) = _one(
        c,
        "SELECT array_agg(ROW(u.job, u.kind, u.scope, u.queue, NULL, NULL, NULL, NULL, NULL, NULL,"
        " NULL, NULL, NULL, NULL)::cronledger_internal.locked_schedule)::text"
        " FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) u(job, kind, scope, queue)",
        [[row.key[part] for row in due] for part in range(3)] + [[row.queue for row in due]],
    )
    values = {
        "planned": ("text[]", jobs), "claimed": ("text[]", []), "limits": ("text[]", queues),
        "locked": ("cronledger_internal.locked_schedule[]", locked),
    }  # fmt: skip
    return {
        "lock_due_schedules": nested(
            c, "lock_due_schedules", of_queues=list(QUEUES), of_host="bench", excluded_jobs=[],
            max_rows=batch, ahead=timedelta(0), due_from=None,
        ),
        "lock_woken_schedules": nested(
            c, "lock_woken_schedules", of_queues=list(QUEUES), excluded_jobs=[], max_rows=batch
        ),
        "lock_limited_queues": assigned(c, "claim_look", "locked_queues", values),
        "lock_limited_jobs": assigned(c, "claim_look", "locked_jobs", values),
        "read_jobs": assigned(c, "claim_look", "jobs", values),
        "count_running_queues": assigned(c, "claim_look", "queue_room", values),
        "read_planned_skips": assigned(c, "claim_look", "planned_skips", values),
        "read_running": assigned(c, "claim_look", "running", values),
    }  # fmt: skip


def assigned(
    c: psycopg.Connection, function: str, variable: str, values: Mapping[str, tuple[str, Any]]
) -> Sent:
    """The query whose result a function assigns to a variable, perhaps together with others.

    `values`: of variables in it.
    """
    source, _ = _source(c, function)
    body = re.search(rf"^ +{variable} := ((?:ARRAY)?\(.*?\));$", source, MANY_LINES)
    into = re.search(rf"^ +SELECT ([^;]*?)\s+INTO {variable}\b[^\n]*(.*?);$", source, MANY_LINES)
    assert body or into, variable
    text = f"SELECT {body[1]}" if body else f"SELECT {into[1]}{into[2]}" if into else ""
    used = {name: value for name, value in values.items() if re.search(rf"\b{name}\b", text)}
    for name, (kind, _) in used.items():
        text = re.sub(rf"\b{name}\b", f"%({name})s::{kind}", text)
    return Sent(text, {name: value for name, (_, value) in used.items()})


def nested(c: psycopg.Connection, function: str, **values: Any) -> Sent:
    """The last query of a function, with its parameters: no EXPLAIN looks into a function."""
    source, arguments = _source(c, function)
    condition = "FOUND|with_windows|of_done IS NOT NULL"
    more = rf"(?:--[^\n]*\s*)?IF (?:{condition}) THEN\s*PERFORM [^;]*;\s*END IF;\s*"
    body = re.search(rf"RETURN(?: QUERY)?\b(?!;)(.*?);\s*(?:{more})?END\s*$", source, re.DOTALL)
    assert body is not None
    text = body[1]
    for argument in arguments.split(", "):
        name, kind = argument.split(" ", 1)
        if name in values:
            text = re.sub(rf"\b{name}\b", f"%({name})s::{kind}", text)
    return Sent(text, values)


def guards(c: psycopg.Connection, function: str) -> dict[str, Sent]:
    """The probes that decide whether the function executes its other statements."""
    source, _ = _source(c, function)
    probes = re.findall(
        r"EXISTS (\(SELECT FROM \w+\.[^()]*\))(?:,|\s+(?:THEN|AND|OR|INTO))", source
    )
    assert probes, function
    return {
        f"{function}_guard_{number}": Sent(f"SELECT EXISTS {probe}", {})
        for number, probe in enumerate(probes)
    }


def _source(c: psycopg.Connection, function: str) -> tuple[Any, ...]:
    """The body and the arguments of a function of the ledger."""
    return _one(
        c,
        "SELECT prosrc, pg_get_function_identity_arguments(oid) FROM pg_proc"
        " WHERE oid = (SELECT oid FROM pg_proc WHERE proname = %s"
        " AND pronamespace::regnamespace::text ~ '^cronledger')",
        [function],
    )


def inside(c: psycopg.Connection, outer: Sent) -> Sent:
    """The statement of the function that `outer` calls, with the same parameters."""
    call = re.search(r"FROM cronledger_internal\.(\w+)\((.*)\) \w+\s*$", outer.text, re.DOTALL)
    assert call is not None
    (names,) = _one(
        c,
        "SELECT proargnames FROM pg_proc WHERE proname = %s"
        " AND pronamespace = 'cronledger_internal'::regnamespace",
        [call[1]],
    )
    given = re.findall(r"%\((\w+)\)s", call[2])
    values = {name: outer.params[key] for name, key in zip(names, given, strict=False)}
    return nested(c, call[1], **values)


def again(c: psycopg.Connection, batch: int) -> dict[str, Sent]:
    """The statements of claim_due: what exists already and is due."""
    able = _able(batch)
    with c.transaction(force_rollback=True):
        chosen, first, last = _one(
            c,
            "SELECT array_agg(d)::text, min(d.plan_time), max(d.plan_time) FROM cronledger_internal"
            ".lock_due_existing(%(of_queues)s, %(of_kinds)s, %(of_functions)s, '{}', false, '{}',"
            " %(max_rows)s) d",
            able,
        )
    tokens = [uuid4() for _ in range(batch)]
    return {
        **guards(c, "claim_due"),
        **guards(c, "claim_look"),
        **guards(c, "rearm_unblocked"),
        **guards(c, "next_waiting"),
        "next_waiting": nested(c, "next_waiting", since=LONG_AGO),
        "lock_due_existing": nested(c, "lock_due_existing", **able),
        "decide_existing": nested(
            c, "decide_existing", candidates=chosen, held_queues=list(QUEUES), held_jobs=[],
            max_rows=batch,
        ),
        "try_claim_existing": nested(
            c, "try_claim_existing", by_runner="runner-0", chosen=chosen, new_tokens=tokens,
            trusted_since=LONG_AGO, first_plan=first, last_plan=last,
        ),
    }  # fmt: skip


def poll(c: psycopg.Connection) -> Sent:
    """What a check-in reads of what is due; the rest of it is judged as a round."""
    able = {name: value for name, value in _able(1).items() if name != "max_rows"}
    return nested(c, "earliest_due", **able, due_from=None)


def stale(c: psycopg.Connection, batch: int) -> Sent:
    """What claim_due looks for only when a lease is known to be stale."""
    return nested(c, "lock_stale", trusted_since=LONG_AGO, **_able(batch))


def _able(batch: int) -> dict[str, Any]:
    return {
        "of_queues": list(QUEUES), "of_kinds": ["python"], "of_functions": ["bench:handler"],
        "of_labels": ["host=bench"], "sql_commands": False, "excluded_jobs": [], "max_rows": batch,
    }  # fmt: skip


def leases(rows: Rows, batch: int) -> dict[str, Call]:
    """The statements of heartbeats and finishes."""
    held = rows.running[:batch]
    keys, tokens = [key for key, _, _ in held], [token for _, token, _ in held]
    beats = [LeaseKey(key, token, ALWAYS) for key, token, _ in held]
    ends = [
        Ending(key, token, "SUCCESS", '{"rows": 17}', 17, None, None, None, 12, None)
        for key, token, _ in held
    ]
    ended = [(key.scope, queue) for key, _, queue in held]
    return {
        "heartbeat_leases": lambda s, c: s.heartbeat_leases(c, beats),
        "read_leases": lambda s, c: s.read_leases(c, keys, tokens),
        "read_traceparents": lambda s, c: s.read_traceparents(c, keys),
        "finish_executions": lambda s, c: s.finish_executions(c, ends),
        "rearm_unblocked": lambda s, c: s.rearm_unblocked(c, ended),
        "release_executions": lambda s, c: s.release_executions(
            c, keys, tokens, "shutdown", "drained"
        ),
        "request_replacement": lambda s, c: s.request_replacement(c, keys),
        "lock_schedule": lambda s, c: s.lock_schedule(c, keys[0].scope),
    }


def rounds(rows: Rows, batch: int) -> dict[str, Call]:
    """What runs on a timer and rightly reads every RUNNING or parked row; judged by that."""
    since = rows.now - timedelta(days=1)
    runner = {
        "runner": "runner-0", "host": "h", "pid": 1, "version": "0", "state": "running",
        "queues": list(QUEUES), "labels": [], "slots": 10, "running": 0, "ttl": ALWAYS,
        "clock_skew": ALWAYS,
        "fingerprint": {}, "handlers": ["bench:handler"], "diagnostics": Jsonb({}), "deploy": None,
        "ledger": None, "kinds": ["python"], "sql_commands": False, "excluded_jobs": [],
        "due_from": None, "most": None, "boot_id": None, "uptime": None,
    }  # fmt: skip
    return {
        "check_in": lambda s, c: s.check_in(c, **runner),
        "sweep_stale": lambda s, c: s.sweep_stale(c, since),
        "rearm_left_behind": lambda s, c: s.rearm_left_behind(c),
        "resume_paused": lambda s, c: s.resume_paused(c),
    }


# -- judging --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the report; `faults` empty: within the limits."""

    name: str
    batch: int
    mode: str
    measured: Measured
    per_row: int
    faults: Sequence[str]


def judge(name: str, batch: int, mode: str, m: Measured, fixed: int) -> Verdict:
    """Per claimed row: the rows of the batch, whatever the statement itself returns; above `fixed`
    buffers or rows in any case.

    Removed rows count in generic plans, which replicas use. A custom plan knows the bounds of
    plan_time, and where it expects few rows between them, it compares each with the whole batch."""
    faults = _faults(m)
    if m.buffers > fixed + MOST_BUFFERS * batch:
        faults.append(f"{m.buffers / batch:.0f} buffers per row")
    if mode == "generic" and m.removed > fixed + MOST_REMOVED * batch:
        faults.append(f"{m.removed / batch:.0f} rows removed per row")
    return Verdict(name, batch, mode, m, batch, faults)


def judge_round(name: str, batch: int, mode: str, m: Measured, budget: int) -> Verdict:
    """`budget`: RUNNING rows, dead entries of the index among them, and parked ones."""
    faults = _faults(m)
    if m.buffers > 4 * budget:
        faults.append(f"{m.buffers} buffers for {budget} RUNNING and parked rows")
    return Verdict(name, batch, mode, m, budget, faults)


def _faults(m: Measured) -> list[str]:
    return [f"Seq Scan on {table}" for table in m.seq_scans] + ["JIT"] * m.jit


def measure(c: psycopg.Connection, batches: Sequence[int] = BATCHES) -> list[Verdict]:
    """Every statement, batch and mode once warm; nothing is changed. `c` in autocommit mode."""
    rows = read_rows(c, max(batches))
    warm: Run = lambda _, statement, mode: _warm(c, statement, mode)  # noqa: E731
    verdicts = [v for batch in batches for v in _judged(c, rows, batch, MODES, warm)]
    return [*verdicts, *_judged(c, rows, batches[-1], MODES, warm, rounds=True)]


def _judged(
    c: psycopg.Connection, rows: Rows, batch: int, modes: Sequence[str], run: Run, *,
    rounds: bool = False,
) -> Iterator[Verdict]:  # fmt: skip
    judged, limit = (judge_round, _budget(c)) if rounds else (judge, _fixed(c))
    for name, statement in (_timed if rounds else _batched)(c, rows, batch).items():
        for mode in modes:
            yield judged(name, batch, mode, run(name, statement, mode), limit)


def measure_filled(server: Server, size: dataset.Size) -> list[Verdict]:
    """Fill a ledger of that size in a database of its own, and measure there."""
    with server.database() as dsn:
        migrate(dsn)
        with psycopg.connect(dsn, autocommit=True) as c:
            dataset.fill(c, size)
            return measure(c)


def _batched(c: psycopg.Connection, rows: Rows, batch: int) -> dict[str, Sent]:
    calls = {**claims(rows, batch), **leases(rows, batch)}
    statements = {name: sent(call) for name, call in calls.items()}
    statements |= {name: inside(c, statements[name]) for name in IN_FUNCTIONS}
    return statements | looks(c, rows, batch) | again(c, batch) | {"earliest_due": poll(c)}


def _timed(c: psycopg.Connection, rows: Rows, batch: int) -> dict[str, Sent]:
    statements = {name: sent(call) for name, call in rounds(rows, batch).items()}
    statements["lock_stale"] = stale(c, batch)
    statements["left_behind"] = nested(c, "left_behind", most=MOST_EXAMINED)
    return statements


def _budget(c: psycopg.Connection) -> int:
    (found,) = _one(
        c,
        """SELECT (SELECT count(*) FROM cronledger.executions WHERE status = 'RUNNING') +
           (SELECT count(*) FROM cronledger.schedules
            WHERE parked IN ('waiting', 'limit', 'no_runner'))""",
    )
    return int(found)


def _fixed(c: psycopg.Connection) -> int:
    """What a statement may read whatever its batch."""
    jobs, partitions, running, limited_queues = _one(
        c,
        """SELECT (SELECT count(DISTINCT job_name) FROM cronledger.executions
                   WHERE next_attempt_at IS NOT NULL),
                  (SELECT count(*) FROM cronledger.partitions()),
                  (SELECT count(*) FROM cronledger.executions WHERE status = 'RUNNING'),
                  (SELECT count(*) FROM cronledger.queues WHERE max_running IS NOT NULL)""",
    )
    return int(PROBES * jobs * partitions + running * limited_queues)


def _warm(c: psycopg.Connection, statement: Sent, mode: str) -> Measured:
    try:
        with c.transaction(force_rollback=True):
            return explain(c, statement, mode)
    except psycopg.errors.QueryCanceled:
        return Measured(15_000, 0, 0, 0, 0, ["longer than 15 s"], 0, frozenset(), 0, False)


class EarlyPlans:
    """The statements of claim, finish, heartbeat and rounds as a replica has them that planned them
    before the rows came: generic, and kept until the tables are analyzed."""

    def __init__(self, c: psycopg.Connection) -> None:
        """`c` in autocommit mode, to a ledger that has its partitions."""
        self._cursor = ClientCursor(c)
        for setting in (*PLANNING, "plan_cache_mode = force_generic_plan"):
            self._cursor.execute(f"SET {setting}".encode())
        scope, now = ScopeKey("", "", ""), LONG_AGO
        due = ScheduleRow(scope, "", now, 1, address="(0,1)")
        nobody = Rows(now, [due], [(ExecutionKey(*scope, now), UUID(int=0), "")])
        for name, statement in (_batched(c, nobody, 1) | _timed(c, nobody, 1)).items():
            prepare(self._cursor, name, statement)
            nulls = ", ".join(["NULL"] * len(_order(statement)))
            run = f"EXECUTE {name} ({nulls})" if nulls else f"EXECUTE {name}"
            self._cursor.execute(f"EXPLAIN {run}".encode())

    def measure(self, batch: int) -> list[Verdict]:
        """Each of them once with these plans; nothing is changed."""
        c = self._cursor.connection
        parts = (c, read_rows(c), batch, ("early",), self._measured)
        return [*_judged(*parts), *_judged(*parts, rounds=True)]

    def _measured(self, name: str, statement: Sent, _: str) -> Measured:
        return _run(self._cursor, name, statement)


def report(verdicts: Sequence[Verdict]) -> str:
    lines = [
        (
            v.name, v.batch, v.mode, f"{v.measured.ms:.2f}",
            f"{v.measured.planning_ms:.2f}", v.measured.rows,
            f"{v.measured.buffers / v.per_row:.1f}", f"{v.measured.removed / v.per_row:.1f}",
            v.measured.partitions, "; ".join(v.faults)[:70] or "ok",
        )
        for v in verdicts
    ]  # fmt: skip
    headers = (
        "statement", "batch", "plan", "ms", "planning", "rows", "buffers/row", "removed/row",
        "partitions", "verdict",
    )  # fmt: skip
    return tabulate(lines, headers)


def main() -> int:
    """Fill a server of its own, measure, print; answers the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--binaries")
    options = parser.parse_args()
    with durable_server(options.binaries) as server:
        verdicts = measure_filled(server, dataset.SHORT if options.short else dataset.FULL)
    print(report(verdicts))
    return 1 if any(v.faults for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
