"""Deliberate mistakes in what was asked for and must hold across attempts: cancels, pauses,
tokens, turns. `mutations` tries them."""

from contextlib import AbstractContextManager

from cronledger.engine.claiming import decide, tokens
from tests.simulation.support.backend import Database
from tests.simulation.support.mistakes.mutating import both, in_function, in_statement, method

steals_what_was_cancelled = in_function("may_be_stolen", ("AND cancel_requested_at IS NULL", ""))
"""A stale lease is stolen though its end was asked for."""
retries_in_a_pause = both(
    in_function(
        "lock_due_existing",
        ("AND e.next_attempt_at > coalesce(j.paused_at, '-infinity')", ""),
        ("AND (j.paused_at IS NULL OR (e.trigger = 'manual' AND e.status = 'PENDING'))", ""),
    ),
    in_function(
        "decide_existing",
        ("(j.paused_at IS NULL OR (c.forced AND c.plan > j.paused_at))", "true"),
    ),
)  # fmt: skip
"""What awaits a retry starts though its job is paused."""


def tokens_again(_: Database) -> AbstractContextManager[None]:
    """A token that was used is offered again."""
    return method(tokens.Tokens, "spend", lambda original, self, used: None)


takes_retirements_for_one = in_function(
    "claim_look",
    ("SELECT h.retired_at, h.returned_at FROM",
     "SELECT min(h.retired_at) AS retired_at, CASE WHEN bool_and(h.returned_at IS NOT NULL)"
     " THEN max(h.returned_at) END AS returned_at FROM"),
    ("h.returned_at > s.planned_through)", "h.returned_at > s.planned_through)"
     " HAVING count(*) > 0"),
)  # fmt: skip
"""Of several retirements, one is planned that lasts from the first to the end of the last."""
asks_providers_out_of_turn = in_statement(
    "take_turn", ("cronledger_internal.take_turn(", "'' <> (")
)
"""Several runners ask a provider at a time."""


def starts_all_at_the_limit(_: Database) -> AbstractContextManager[None]:
    """Of one batch more start than its limited job or queue has room for."""
    return method(decide._Decider, "_take_room", lambda original, self, job, queue: None)
