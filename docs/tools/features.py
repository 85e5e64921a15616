"""Generate docs/features.md from the names of the tests.

A test that shows feature Fn is named `test_fnn_…`; one that shows two of them names both:
`test_f08_f09_…`.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from docs.tools.markdown import NOTE, table

ROOT = Path(__file__).parents[2]
WHERE = ("tests", "examples")
NUMBERED = re.compile(r"test_((?:f\d\d_)+)")

INTRODUCTION = """\
Each feature has a number, and the tests that show it have the number in their names: those of F1
begin with `test_f01_`.
"""

GROUPS: dict[str, dict[int, str]] = {
    "Input and watermarks": {
        1: "`enqueue` creates a PENDING execution, or merges into the one of its key",
        2: "a scope is dirty while its input is ahead of its last success, and runs once more",
        3: "`claim` requests one execution, and returns a reason if it is refused",
        4: "`max_running` of a job, exact over all scopes and replicas",
        5: "new input gives an execution all attempts again",
        6: "finish, fail and release need the current token",
        7: "the status of one execution, listings by job and status, `is_dirty`",
    },
    "Schedules and plugins": {
        8: "the loops of a replica never overlap themselves and never wait for handlers",
        9: "overlap holds over all replicas, for manual executions too",
        10: "trigger and retry of one execution, with clear refusals; a handler knows its trigger",
        11: "Apps register and unregister while a replica runs",
        12: "`run_timeout` of a job",
        13: "slots of a replica, `max_running` of a queue",
        14: "diagnostics of a live replica",
        15: "`await replica.step()` and a clock that travels, for users' own tests",
    },
    "Queues and other languages": {
        16: "payloads are validated; one that cannot be read fails its own execution for good",
        17: "workers in other languages: `claim_next`, `heartbeat`, `finish`, `fail`, `release`",
        18: "a renewal that the database accepted is never treated as lost",
        19: "result and terminal status are one write",
        20: "an execution of a runner that crashed is stolen, and its history records it",
        21: "`take_results`: each result is consumed once",
        22: "`group_id`: many executions are followed as one",
        23: "queues: which replica takes which; pause of one, pause of all",
    },
    "In a program of one's own": {
        24: "`async with Replica(app, …)`, `drain`, `abort`, `is_draining`",
        25: "a cancellation that handlers and their helpers share",
        26: "the deadline of a drain is kept and reported",
        27: "names of runners, and events when they start and stop",
    },
    "Handlers": {
        28: "`sql`: a statement in one transaction with its terminal write",
        29: "`http`: a request, with secrets from the environment",
        30: "`ctx.transaction()`: the handler's writes and its SUCCESS, both or neither",
        31: "`assert_lease(id, token)` fences the user's own SQL",
    },
    "From psql": {
        32: "`trigger`, `enqueue`, `pause`, `resume`, `cancel`, `retry` from another process",
        33: "replicas notice edits of `jobs`; a bad job shows its error and stops no other",
        34: "`cancel` reaches a running handler by a notification or its next heartbeat",
        35: "`backfill`: plan_times of the past under their own key",
        36: "`enqueue_many` enqueues many items of one job in one call",
    },
    "From Python": {
        37: "`Client` and `AsyncClient` call the functions, and return typed values",
        38: "`job.enqueue` in a transaction of psycopg, SQLAlchemy or Django; typed payloads",
        39: "`wait` returns the end of an execution, and misses none",
    },
    "Around handlers": {
        40: "the lifespan of an App: resources from before the first claim to after the last end",
        41: "middleware around handlers, of an App and of a job",
        42: "the fields of the execution in the log lines of its handler",
        43: "a `Context` for calling a handler without a database",
    },
    "Failures": {
        44: "`retry_on` and `never_retry_on` decide which failures are retried",
    },
    "Before a deployment": {
        45: "`check` finds what is wrong with a source, and shows its firings, without a database",
        46: "`schema`: editors complete and check cronledger.toml",
        47: "`dev` runs jobs on a database of their own, and restarts when a file changes",
        48: "the shell completes names from the ledger",
        49: "`assert_fires`: assertions on schedules in users' tests, without a database",
    },
    "In frameworks": {
        50: "Starlette and FastAPI: a replica in each process of the server",
        51: "an app for Django: `manage.py cronledger`, autodiscovery, Django's connections",
        52: "Django's admin shows the ledger, and changes nothing",
        53: "a backend for `django.tasks`, whose tasks may have schedules",
    },
    "The web page": {
        54: "`cronledger web` and `create_app`: the page reads as a viewer, bounded and read-only",
        55: "who may see the page and act on it, by token, proxy or the embedding program",
        56: "the pages, and what each shows",
        57: "actions on the page are those of the SQL functions, in the name of who signed in",
        58: "`verify` records its runs, and `doctor` reports the last one",
        59: "a job has the JSON Schema of its payload, derived from its handler",
        60: "sums of ended executions by hour, which the sweeper keeps and `verify` checks",
        61: "the accounted day: every plan_time of a day in the job's zone, and an exact sum",
    },
    "Owners and audit": {
        62: "jobs have an owner and labels, by which listings are filtered",
        63: "an audit trail: each action of an operator, each edit and refusal, in one row",
        64: "alerts when the state of a job or of the ledger changes, each edge exactly once",
        65: "channels: alerts are delivered as executions, with retries and slots of their own",
        66: "pings of Healthchecks and check-ins of Sentry report each execution outside",
    },
    "Deadlines": {
        67: "deadlines of starts, ends and durations: each missed one is recorded exactly once",
    },
    "Metrics, traces and deployment": {
        68: "`/metrics` of each replica for Prometheus, with a bounded number of series",
        69: "metrics of the whole ledger, one snapshot, with a bounded number of series",
        70: "a span for each attempt, with a link to the span that enqueued the execution",
        71: "rules for Prometheus that match the alerts of the documentation, and dashboards",
        72: "units of systemd: a replica reports when it is ready, alive and stopping",
        73: "an image and manifests for Kubernetes; a rolling deploy misses nothing",
    },
}
"""Every feature by its number."""


class Shown(NamedTuple):
    """One numbered test: its file, relative to the project, and its function."""

    file: str
    function: str


def collect(root: Path = ROOT) -> dict[int, list[Shown]]:
    """Return the numbered tests of each feature, by file and place in it."""
    found: dict[int, list[Shown]] = {}
    for where in WHERE:
        for path in sorted((root / where).rglob("test_*.py")):
            for name in _functions(path):
                if numbers := NUMBERED.match(name):
                    for number in re.findall(r"\d\d", numbers[1]):
                        shown = Shown(path.relative_to(root).as_posix(), name)
                        found.setdefault(int(number), []).append(shown)
    return found


def _functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def document() -> str:
    """Return the text of docs/features.md."""
    tests = collect()
    parts = ["# Features and their tests\n", NOTE, INTRODUCTION]
    for title, features in GROUPS.items():
        rows = [(f"F{n}", meaning, _links(tests.get(n, ()))) for n, meaning in features.items()]
        parts += [f"## {title}\n", table(("", "feature", "tests"), rows)]
    return "\n".join(parts)


def _links(tests: Sequence[Shown]) -> str:
    return "<br>".join(f"[{test.function}](../{test.file})" for test in tests)
