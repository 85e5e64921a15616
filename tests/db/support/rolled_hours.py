"""The roll-up of hours in tests: a round of it, and the sums that it must not change."""

from typing import Any

from tests.db.support.engine import Ledger

SUMS = """
SELECT coalesce(sum(success), 0)::int, coalesce(sum(failed), 0)::int,
       coalesce(sum(cancelled), 0)::int, coalesce(sum(retries), 0)::int
"""
DIRECT = """
SELECT job_name, scope_kind, scope_id, date_trunc('hour', plan_time, 'UTC') AS hour,
       count(*) FILTER (WHERE status = 'SUCCESS') AS success,
       count(*) FILTER (WHERE status = 'FAILED') AS failed,
       count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled,
       sum(greatest(attempt - 1, 0)) AS retries
FROM executions WHERE finished_at IS NOT NULL AND next_attempt_at IS NULL GROUP BY 1, 2, 3, 4
"""
DUE = """
SELECT job_name, scope_kind, scope_id, hour FROM changed_hours
UNION
SELECT job_name, scope_kind, scope_id, date_trunc('hour', plan_time, 'UTC') FROM executions
WHERE changed_xact >= (SELECT marked_before FROM roll_up_state)
"""


def round_of(ledger: Ledger) -> None:
    """One round of the roll-up, as the sweeper does it."""
    after: str | None = "0"
    while after is not None:
        after = ledger.one(
            "SELECT cronledger_internal.mark_changed_hours(%s::text::xid8, 20000)", after
        )
    while ledger.one("SELECT cronledger_internal.roll_up_hours(200)"):
        pass


def totals(ledger: Ledger) -> tuple[Any, Any]:
    """The sums of the hours that are counted plus the rest; and the sums of all executions."""
    both = ledger.one(
        f"WITH direct AS MATERIALIZED ({DIRECT}), due AS MATERIALIZED ({DUE}), parts AS ("
        f" SELECT success, failed, cancelled, retries FROM execution_hours h WHERE NOT EXISTS ("
        "   SELECT FROM due d WHERE (d.job_name, d.scope_kind, d.scope_id, d.hour)"
        "     = (h.job_name, h.scope_kind, h.scope_id, h.hour))"
        " UNION ALL SELECT success, failed, cancelled, retries FROM direct NATURAL JOIN due)"
        f" SELECT (SELECT x FROM ({SUMS} FROM parts) x)::text,"
        f" (SELECT x FROM ({SUMS} FROM direct) x)::text"
    )
    return both[0], both[1]
