"""The verdict: from the ledger, by SQL and by `cronledger verify`, and from what handlers and
replicas wrote outside it."""

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg

from tests.chaos.jobs import LAPPING, THREADED
from tests.cluster.support.harness import ROOT, instant
from tests.cluster.support.marks import Mark
from tests.processes import clean_environ

SILENT = 3.0
"""Seconds after which a handler that shows signs of life all the time has stood still."""
AWAKE = 1.0
"""Seconds in which it need not know yet, when it goes on, that its lease is gone."""
EARLY = 0.02

LEDGER: Mapping[str, LiteralString] = {
    "left unfinished": """
        SELECT count(*) FROM cronledger.executions WHERE status IN ('RUNNING', 'PENDING')""",
    "early: started_at before due_at": """
        SELECT count(*) FROM cronledger.executions WHERE started_at < due_at""",
    "doubled: beyond max_attempts": """
        SELECT count(*) FROM cronledger.executions WHERE attempt > max_attempts""",
    "doubled: not reentrant, again after an unknown end": """
        SELECT count(*) FROM cronledger.executions e JOIN cronledger.jobs j ON j.name = e.job_name
        WHERE NOT j.allow_stale_reentry AND e.attempts @> '[{"error_code": "runner_crashed"}]'""",
    "doubled: effects twice": """
        SELECT count(*) FROM (SELECT id FROM effects GROUP BY id HAVING count(*) > 1) d""",
    "lost: effects without SUCCESS, or the reverse": """
        SELECT count(*) FROM effects f FULL JOIN (
            SELECT id::text, job_name FROM cronledger.executions
            WHERE job_name IN ('once', 'written') AND status = 'SUCCESS') e USING (id)
        WHERE e.id IS NULL OR f.id IS NULL""",
    # From its first revision on: that is taken after the locks, so a moment after created_at. Until
    # the end that was set, or the revision that set it, which may have waited for a lock past it.
    "missing: unaccounted seconds of unedited jobs": """
        SELECT coalesce(sum(abs(n.planned - n.ran - n.skipped)), 0) FROM (
          SELECT (SELECT count(*) FROM generate_series(
                    date_trunc('second', s.created_at), s.planned_through, '1 s') g(at)
                  WHERE g.at > r.first AND g.at < greatest(j.ends_at, r.ended)
                    AND extract(second FROM g.at)::int % p.step = 0) AS planned,
                 (SELECT count(*) FROM cronledger.executions e WHERE e.trigger = 'schedule'
                   AND (e.job_name, e.scope_kind, e.scope_id)
                     = (s.job_name, s.scope_kind, s.scope_id)) AS ran,
                 (SELECT coalesce(sum(k.count), 0) FROM cronledger.skips k
                   WHERE (k.job_name, k.scope_kind, k.scope_id)
                     = (s.job_name, s.scope_kind, s.scope_id)) AS skipped
          FROM cronledger.schedules s JOIN cronledger.jobs j ON j.name = s.job_name
          JOIN (VALUES ('steady', 1), ('limited', 1), ('once', 1),
            ('written', 1), ('waits', 2), ('allowed', 2), ('foreign', 2), ('replaced', 3),
            ('command', 3), ('jittered', 5), ('long', 7)) p(job, step) ON p.job = s.job_name
          CROSS JOIN LATERAL (
            SELECT min(effective_from) AS first,
                   min(effective_from) FILTER (
                     WHERE (definition->>'ends_at')::timestamptz = j.ends_at) AS ended
            FROM cronledger.job_revisions r WHERE r.job_name = s.job_name) r) n""",
    "tenants left dirty": "SELECT count(*) FROM cronledger.input_status WHERE is_dirty",
}


OVERLAPPING: LiteralString = """
    SELECT format('%s/%s: %s (%s, %s to %s) beside %s (%s, %s to %s)', a.job_name, a.scope_id,
                  a.id, a.status, a.started_at, a.finished_at,
                  b.id, b.status, b.started_at, b.finished_at)
    FROM cronledger.executions a JOIN cronledger.executions b
      ON (a.job_name, a.scope_kind, a.scope_id) = (b.job_name, b.scope_kind, b.scope_id)
     AND a.plan_time < b.plan_time AND b.plan_time < a.plan_time + interval '15 min'
     AND tstzrange(a.started_at, a.finished_at) && tstzrange(b.started_at, b.finished_at)
    JOIN cronledger.jobs j ON j.name = a.job_name AND j.overlap <> 'allow'
    WHERE a.started_at < a.finished_at AND b.started_at < b.finished_at"""


class Life(NamedTuple):
    """One attempt as its process showed it: from its first sign to its last."""

    first: float
    last: float
    execution: int
    attempt: int


@dataclass
class Verdict:
    """What was found, by what it is called; `details`: a few of each, for people."""

    found: dict[str, int] = field(default_factory=dict)
    details: dict[str, list[str]] = field(default_factory=dict)

    def add(self, what: str, cases: Sequence[object]) -> None:
        self.found[what] = len(cases)
        if cases:
            self.details[what] = [str(case) for case in cases[:5]]

    @property
    def clean(self) -> bool:
        return not any(self.found.values())

    def total(self, word: str) -> int:
        """Of everything whose name begins with that word."""
        return sum(n for what, n in self.found.items() if what.startswith(word))


def judge_ledger(verdict: Verdict, c: psycopg.Connection[Any]) -> None:
    """By SQL alone."""
    for what, query in LEDGER.items():
        row = c.execute(query).fetchone()
        assert row is not None
        verdict.found[what] = int(row[0])
    overlapping = c.execute(OVERLAPPING).fetchall()
    verdict.add("overlapping: in the ledger", [text for (text,) in overlapping])


def judge_outside(
    verdict: Verdict,
    c: psycopg.Connection[Any],
    marks: Sequence[Mark],
    *,
    offset: float,
    acknowledged: Iterable[int],
    succeeded: Iterable[int],
    starved: Sequence[tuple[float, float]] = (),
) -> None:
    """By lines outside the database. `offset`: CLOCK_MONOTONIC minus the database's clock;
    `acknowledged`: ids that clients were told; `succeeded`: ids whose SUCCESS a worker was told;
    `starved`: when a replica was starved of CPU.
    """
    rows = c.execute("SELECT id, status, due_at FROM cronledger.executions").fetchall()
    status = {number: state for number, state, _ in rows}
    due = {number: at.timestamp() for number, _, at in rows}
    starts = [m for m in marks if m.what == "start"]
    begun = Counter((m.execution, m.attempt) for m in starts)
    verdict.add("doubled: attempts begun twice", [key for key, n in begun.items() if n > 1])
    names: defaultdict[object, set[int]] = defaultdict(set)
    for mark in starts:
        names[mark.job, mark.scope, mark.plan_time].add(mark.execution)
    twice = [key for key, executions in names.items() if len(executions) > 1]
    verdict.add("doubled: plan_times with two executions", twice)
    verdict.add(
        "early: begun before the plan_time",
        [m for m in starts if m.at < instant(m.plan_time) + offset - EARLY],
    )
    verdict.add(
        "early: begun before due_at",
        [m for m in starts if m.attempt == 1 and m.execution in due
         and m.at < due[m.execution] + offset - EARLY],
    )  # fmt: skip
    verdict.add("overlapping: alive at once", alive_at_once(marks, starved))
    begun_ids = {m.execution for m in starts}
    verdict.add("lost: begun, and not in the ledger", sorted(begun_ids - status.keys()))
    verdict.add("lost: acknowledged to a client", sorted(set(acknowledged) - status.keys()))
    verdict.add("lost: SUCCESS taken from the worker, and is not",
                sorted(x for x in set(succeeded) if status.get(x) != "SUCCESS"))  # fmt: skip


def alive_at_once(marks: Sequence[Mark], starved: Sequence[tuple[float, float]] = ()) -> list[str]:
    """Attempts of one (job, scope) that both showed signs of life while the other did.

    A process that stood still (SIGSTOP, a host without a processor or a disk to spare) learns what
    it lost when it goes on: its signs within a second of that do not count. Nor do those of a
    function in a thread while a replica is starved of CPU: nothing can stop it, and the ledger
    refuses what it writes.
    """
    lives: defaultdict[tuple[str, str], dict[tuple[int, int], Life]] = defaultdict(dict)
    seen: dict[tuple[int, int], float] = {}
    woken: dict[tuple[int, int], float] = {}
    for m in sorted(marks):
        key = (m.execution, m.attempt)
        if m.at - seen.get(key, m.at) > SILENT:
            woken[key] = m.at
        seen[key] = m.at
        if m.job in THREADED and any(a <= m.at < b + AWAKE for a, b in starved):
            continue
        if m.job in LAPPING or m.at - woken.get(key, -AWAKE) < AWAKE:
            continue
        of_scope = lives[m.job, m.scope]
        life = of_scope.get(key, Life(m.at, m.at, *key))
        of_scope[key] = Life(life.first, m.at, *key)
    found = []
    for (job, scope), of_scope in lives.items():
        for before, after in pairwise(sorted(of_scope.values())):
            if after.first < before.last:
                found.append(
                    f"{job}/{scope}: {before.execution}#{before.attempt} lived"
                    f" {before.last - after.first:.3f} s beside {after.execution}#{after.attempt}"
                    f" (from {after.first:.3f} to {before.last:.3f})"
                )
    return found


def judge_alerts(verdict: Verdict, c: psycopg.Connection[Any], received: str) -> None:
    """By the outcomes of `waits`, whose executions follow each other. `received`: lines of ids."""
    outcomes = c.execute(
        "SELECT status FROM cronledger.executions WHERE job_name = 'waits'"
        " AND status IN ('SUCCESS', 'FAILED') AND next_attempt_at IS NULL ORDER BY finished_at, id"
    ).fetchall()
    states = ["SUCCESS", *(state for (state,) in outcomes)]
    due = [{"FAILED": "opened", "SUCCESS": "closed"}[b] for a, b in pairwise(states) if a != b]
    alerts = c.execute(
        "SELECT id, kind, coalesce(delivery_status, ''), event FROM cronledger.alerts"
        " WHERE channel = 'lines' AND job_name = 'waits' ORDER BY id"
    ).fetchall()
    # An outage of a minute also makes the job overdue, and its missed plan_times are skipped.
    raised = [kind for _, kind, _, event in alerts if event in ("failed", "recovered")]
    wrong = [] if raised == due else [f"{len(due)} edges, {len(raised)} alerts"]
    verdict.add("alerts: others than the edges of the outcomes", wrong)
    verdict.add("lost: alerts that were not delivered", [x for x in alerts if x[2] != "SUCCESS"])
    heard = {int(line) for line in received.split()}
    verdict.add(
        "lost: alerts that the receiver has not seen", [x for x in alerts if x[0] not in heard]
    )


def judge_spans(verdict: Verdict, c: psycopg.Connection[Any], lines: str) -> None:
    """`lines`: execution and attempt of each span that has ended."""
    spans = Counter(tuple(map(int, line.split())) for line in lines.splitlines())
    verdict.add("doubled: attempts with two spans", [key for key, n in spans.items() if n > 1])
    rows = c.execute("SELECT id, attempt FROM cronledger.executions").fetchall()
    attempts: dict[int, int] = dict(rows)
    verdict.add(
        "lost: spans of attempts that the ledger does not have",
        [key for key in spans if attempts.get(key[0], 0) < key[1]],
    )


def judge_by_verify(verdict: Verdict, dsn: str) -> None:
    """What `cronledger verify` says; each kind of violation by its name."""
    command = [str(Path(sys.executable).parent / "cronledger"), "verify", "--json"]
    environ = {**clean_environ(), "CRONLEDGER_DATABASE_URL": dsn}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        verdict.add("verify did not run", [done.stderr.strip()])
        return
    report = json.loads(done.stdout)
    violations = report["violations"]
    verdict.found["verify: violations"] = len(violations)
    for violation in violations:
        verdict.details.setdefault("verify: violations", []).append(json.dumps(violation))
    if bool(violations) != bool(done.returncode):
        verdict.add("verify contradicts its exit status", [done.returncode])
