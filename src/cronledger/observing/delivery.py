"""Send reports to the ledger, once each: a report that is repeated changes nothing there."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, cast

from cronledger.observing.sides import Side, remember
from cronledger.observing.spool import Run, Spool, wall_clock

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 3
STATEMENT_MS = 3_000
LIMITS = ", ".join(
    f"pg_catalog.set_config('{name}', '{STATEMENT_MS}', true)"
    for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
)
"""They are set for each transaction, because a pooler in transaction mode keeps no others."""
_IMPOSSIBLE = ("22", "23")
"""Classes of SQLSTATE by which the ledger says that a report can never be right. All other errors
may pass: a standby, a full disk, a missing right, a migration, a job that is not declared yet."""
_KEPT_SECONDS = 7 * 86_400
"""The ledger takes no report of a run that is older."""


@dataclass(frozen=True, slots=True)
class Target:
    """The ledger. `warn` is called with each line for people."""

    url: str
    schema: str
    warn: Callable[[str], None]

    @contextmanager
    def connected(self) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
        """Connect with short limits. Raises psycopg.Error."""
        import psycopg  # noqa: PLC0415

        with psycopg.connect(
            self.url, autocommit=True, connect_timeout=CONNECT_SECONDS,
            application_name="cronledger observe", tcp_user_timeout=STATEMENT_MS,
            prepare_threshold=None,
        ) as connection:  # fmt: skip
            yield connection


class Answer(Enum):
    """The result of sending a report. KEPT: the ledger may accept the report later."""

    ACCEPTED = "accepted"
    KEPT = "kept"
    REFUSED = "refused"


def deliver_own(target: Target, run: Run, spool: Spool | None) -> bool:
    """Send the report of a run of this process. Return whether the ledger has it.

    Raises psycopg.Error without a connection, and OSError.
    """
    with target.connected() as connection:
        # The report of the end contains the start, too, and warns if it is refused.
        ended = run.ended is not None
        answer = _send(target, connection, run, spooled=spool is not None, warn=ended)
        if spool is not None and ended:
            _settle(spool, run, answer)
            _ask(target, connection, run, spool, quiet=answer is not Answer.ACCEPTED)
    return answer is Answer.ACCEPTED


def runs_here(target: Target, run: Run, spool: Spool, replies: list[bool]) -> None:
    """Append whether this scheduler runs what has just started, or replicas do, and remember it.

    The reply is appended before it is remembered: a slow disk must not delay the decision.
    Raises psycopg.Error without a connection.
    """
    with target.connected() as connection:
        _ask(target, connection, run, spool, replies)


def _ask(
    target: Target,
    connection: "psycopg.Connection[tuple[object, ...]]",
    run: Run,
    spool: Spool,
    replies: list[bool] | None = None,
    *,
    quiet: bool = False,
) -> None:
    """Ask hand_over() about the start of a run, and remember the reply.

    If the ledger refuses to reply, warn unless `quiet`, and append nothing. A spool that cannot be
    written does not change the reply.
    """
    import psycopg  # noqa: PLC0415
    from psycopg import sql  # noqa: PLC0415

    statement = sql.SQL(
        "SELECT h.runs, h.adoptable, extract(epoch FROM h.replicas_from - {0}.db_clock())::float,"
        " extract(epoch FROM h.replicas_until - {0}.db_clock())::float"
        " FROM {0}.hand_over(%s, {0}.db_clock() - make_interval(secs => %s)) h"
    ).format(sql.Identifier(target.schema))
    try:
        with connection.transaction():
            connection.execute(f"SELECT {LIMITS}".encode())
            now = wall_clock()
            row = connection.execute(statement, [run.job, max(0.0, now - run.started)]).fetchone()
    except psycopg.Error as error:
        if connection.broken or error.sqlstate is None:
            raise
        if not quiet:
            target.warn(f"job {run.job}: {str(error).partition(chr(10))[0]}")
        return
    runs, adoptable, first, until = cast("tuple[bool, bool, float | None, float | None]", row)
    if replies is not None:
        replies.append(runs)
    side = Side(*(None if one is None else now + one for one in (first, until)))
    try:
        remember(spool, run.job, run.ledger, side if adoptable else None)
    except OSError as error:
        target.warn(f"the spool {spool.directory} cannot be written: {error}")


def deliver_all(target_of: Callable[[str], Target | None], spool: Spool) -> int:
    """Send the ends in the spool to their ledgers. Return how many are left.

    `target_of` returns the ledger of a name, or None to leave its reports in the spool until they
    are so old that no ledger takes them. A ledger that cannot be reached does not delay the reports
    of the others. Raises as `deliver_own` does.
    """
    with spool.turn() as is_own:
        runs = [run for run in spool.runs() if run.ended is not None or run.is_lost]
        if not is_own:
            return len(runs)
        left, failure = 0, None
        for ledger in dict.fromkeys(run.ledger for run in runs):
            of_ledger = [run for run in runs if run.ledger == ledger]
            target = target_of(ledger)
            if target is None:
                left += _keep(of_ledger, spool)
                continue
            try:
                left += _deliver(target, of_ledger, spool)
            except Exception as error:  # noqa: BLE001 - it is raised below
                failure = failure or error
        if failure is not None:
            raise failure
    return left


def _keep(runs: Sequence[Run], spool: Spool) -> int:
    """Set runs aside that are too old for any ledger. Return how many are left."""
    old = [run for run in runs if wall_clock() - run.started > _KEPT_SECONDS]
    for run in old:
        spool.refuse(run)
    return len(runs) - len(old)


def _deliver(target: Target, runs: Sequence[Run], spool: Spool) -> int:
    """Send the reports of one ledger, the oldest first. Return how many are left.

    After a report is kept, those of the same job and scope are left for the next delivery.
    Of a run without an end, its own process sends the start. If that process is gone, the start is
    sent here, and the ledger ends the run after run_timeout.
    """
    left = 0
    waiting = set()
    with target.connected() as connection:
        for run in runs:
            schedule = run.job, run.scope_kind, run.scope_id
            answer = Answer.KEPT
            if schedule not in waiting:
                answer = _send(target, connection, run)
                _settle(spool, run, answer)
            if answer is Answer.KEPT:
                waiting.add(schedule)
                left += 1
    return left


def _settle(spool: Spool, run: Run, answer: Answer) -> None:
    if answer is Answer.ACCEPTED:
        spool.remove(run)
    elif answer is Answer.REFUSED:
        spool.refuse(run)


def _what_is_left(*, spooled: bool, is_final: bool) -> str:
    """Return what becomes of a report that the ledger has not accepted."""
    if not spooled:
        return "lost, because the spool cannot be written"
    return "set aside as *.refused" if is_final else "kept in the spool for up to 7 days"


def _send(
    target: Target,
    connection: "psycopg.Connection[tuple[object, ...]]",
    run: Run,
    *,
    spooled: bool = True,
    warn: bool = True,
) -> Answer:
    import psycopg  # noqa: PLC0415
    from psycopg import sql  # noqa: PLC0415

    function = "observe_start" if run.ended is None else "observe_end"
    now = wall_clock()
    ages = {"started_at": now - run.started}
    given: dict[str, object] = {
        "job": run.job, "run_key": run.key, "scope_kind": run.scope_kind,
        "scope_id": run.scope_id, "host": run.host, "source": "command",
    }  # fmt: skip
    if run.ended is not None:
        ages["ended_at"] = now - run.ended
        given["exit_status"] = run.exit_status
    schema = sql.Identifier(target.schema)
    arguments = [
        *(sql.SQL("{} => {}.db_clock() - make_interval(secs => %s)").format(
            sql.Identifier(name), schema) for name in ages),
        *(sql.SQL("{} => %s").format(sql.Identifier(name)) for name in given),
    ]  # fmt: skip
    statement = sql.SQL("SELECT {}.{}({})").format(
        schema, sql.Identifier(function), sql.SQL(", ").join(arguments)
    )
    values = [*(max(0.0, age) for age in ages.values()), *given.values()]
    try:
        with connection.transaction():
            connection.execute(f"SELECT {LIMITS}".encode())
            connection.execute(statement, values)
    except psycopg.Error as error:
        if connection.broken or error.sqlstate is None:
            raise
        is_final = error.sqlstate.startswith(_IMPOSSIBLE) or now - run.started > _KEPT_SECONDS
        left = _what_is_left(spooled=spooled, is_final=is_final)
        if warn:
            cause = str(error).partition("\n")[0]
            target.warn(f"job {run.job}: {cause}; the report is {left}")
        return Answer.REFUSED if is_final else Answer.KEPT
    return Answer.ACCEPTED
