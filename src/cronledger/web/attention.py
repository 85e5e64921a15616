"""Fold what is wrong, and what is held on purpose, into one row for each job.

The statements of the page Now return one row for each job and kind of problem, with the number of
scopes, executions or deadlines that have it. A `Trouble` has all problems of a job.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cronledger.explain import quotes
from cronledger.ledger.reports import Row
from cronledger.web.prose import Pieces, pieces

MOST_FAILURES = 100
"""Failures in a row that list_failing counts."""
DEADLINES = {
    "start_by": "start by missed",
    "finish_by": "finish by missed",
    "expect_duration": "expected duration exceeded",
}


class Kind(StrEnum):
    """What is wrong with a job, the worst first. An address of the page selects it by its value."""

    VIOLATION = "violation"
    FAILING = "failing"
    OVERDUE = "overdue"
    BROKEN = "broken"
    DEADLINE = "deadline"
    ALERT = "alert"
    PAUSED = "paused"
    WAITING = "waiting"


_RANKS = {kind: rank for rank, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a job. `row`: what the statement says of the scope that has it for longest.

    `count`: how many scopes, executions, deadlines or violations have it. `what` names them.
    `quoted`: what people or handlers wrote in the text.
    """

    kind: Kind
    word: str
    row: Row
    since: datetime | None
    text: str
    count: int = 1
    what: str = "scopes"
    quoted: str = ""

    @property
    def pieces(self) -> Pieces:
        """The text in pieces, with its instants."""
        return pieces(self.text, [self.quoted])


@dataclass(frozen=True, slots=True)
class Trouble:
    """All problems of one job or one runner, the worst first."""

    problems: tuple[Problem, ...]

    @property
    def worst(self) -> Problem:
        """The problem that decides where the row stands, and what to do."""
        return self.problems[0]

    @property
    def row(self) -> Row:
        """The job, the scope, the owner and the zone of the worst problem."""
        return self.worst.row

    @property
    def runner(self) -> str | None:
        """The runner that has the problems; None: a job has them, or the ledger."""
        runner: str | None = self.row.get("runner_id") if self.row["job_name"] is None else None
        return runner

    @property
    def since(self) -> datetime | None:
        """When the first of its problems began; None: unknown."""
        return min((one.since for one in self.problems if one.since is not None), default=None)

    @property
    def execution(self) -> int | None:
        """The execution of the worst problem that has one."""
        ids = (one.row.get("id") or one.row.get("execution_id") for one in self.problems)
        return next((number for number in ids if number is not None), None)


def problems(
    *, overdue: Sequence[Row] = (), broken: Iterable[Row] = (), failing: Iterable[Row] = (),
    breaches: Iterable[Row] = (), alerts: Iterable[Row] = (), violations: Iterable[Row] = (),
    paused: Iterable[Row] = (), waiting: Iterable[Row] = (),
) -> list[Problem]:  # fmt: skip
    """Return the problems that the rows of the statements of the page state."""
    stated = {row["job_name"] for row in overdue if row["reason"] == "spec_error"}
    return [
        *(_violation(row) for row in violations),
        *(_failing(row) for row in failing),
        *(_overdue(row) for row in overdue),
        *(_broken(row) for row in broken if row["job_name"] not in stated),
        *(_breach(row) for row in breaches),
        *(_alert(row) for row in alerts),
        *(_paused(row) for row in paused),
        *(_waiting(row) for row in waiting),
    ]


def folded(found: Iterable[Problem]) -> list[Trouble]:
    """Return one Trouble for each job and each runner: the worst first, then the longest."""
    by_subject: dict[tuple[str | None, str | None], list[Problem]] = {}
    for one in found:
        subject = one.row["job_name"], Trouble((one,)).runner
        by_subject.setdefault(subject, []).append(one)
    troubles = [Trouble(_by_rank(its)) for its in by_subject.values()]
    return sorted(troubles, key=_order)


def of_kind(troubles: Sequence[Trouble], kind: str | None) -> list[Trouble]:
    """Return those that have a problem of this kind; None: all."""
    return [
        one
        for one in troubles
        if kind is None or any(problem.kind == kind for problem in one.problems)
    ]


def _by_rank(its: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(its, key=lambda one: _RANKS[one.kind]))


def _order(one: Trouble) -> tuple[int, float, str]:
    since = one.since
    begun = float("inf") if since is None else since.timestamp()
    return _RANKS[one.worst.kind], begun, one.row["job_name"] or ""


def _violation(row: Row) -> Problem:
    return Problem(
        Kind.VIOLATION, row["kind"].replace("_", " "), row, row["plan_time"], row["detail"],
        row["violations"], "violations",
    )  # fmt: skip


def _failing(row: Row) -> Problem:
    failures = row["failures"]
    word = "failed" if failures == 1 else f"failed {failures} times in a row"
    if failures == MOST_FAILURES:
        word = f"failed {failures} times or more in a row"
    error = (row["error_msg"] or "").split("\n")[0]
    text = f"{row['error_code']}: {error}" if error else str(row["error_code"])
    return Problem(Kind.FAILING, word, row, row["failing_since"], text, row["scopes"], quoted=text)


def _overdue(row: Row) -> Problem:
    kind = Kind.OVERDUE
    if row["is_held"]:
        kind = Kind.PAUSED if row["reason"].endswith("paused") else Kind.WAITING
    word = row["reason"].replace("_", " ")
    word = f"overdue: {word}" if kind is Kind.OVERDUE else word
    quoted = quotes.of_overdue(row["reason"], row["detail"])
    return Problem(
        kind, word, row, row["due_at"], row["detail"], row["plan_times"], "plan times", quoted
    )


def _broken(row: Row) -> Problem:
    return Problem(
        Kind.BROKEN, "broken", row, None, row["spec_error"], 1, "definitions", row["spec_error"]
    )


def _breach(row: Row) -> Problem:
    word = DEADLINES[row["kind"]]
    return Problem(
        Kind.DEADLINE, word, row, row["deadline"], "", row["breaches"], "deadlines",
    )  # fmt: skip


def _alert(row: Row) -> Problem:
    word = f"alert {row['event'].replace('_', ' ')}"
    quoted = quotes.of_alert(row["event"], row["summary"])
    return Problem(
        Kind.ALERT, word, row, row["since"], row["summary"], row["scopes"] or 1, quoted=quoted
    )


def _paused(row: Row) -> Problem:
    text = f"{row['paused_reason'] or 'no reason given'} ({row['paused_by']})"
    return Problem(Kind.PAUSED, "paused", row, row["paused_at"], text, quoted=text)


def _waiting(row: Row) -> Problem:
    return Problem(
        Kind.WAITING, "waits for upstream", row, row["due_at"], row["waits_for"],
        row["executions"], "executions",
    )  # fmt: skip
