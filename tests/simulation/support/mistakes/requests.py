"""Deliberate mistakes in what was asked for and must hold across attempts: cancels, pauses,
tokens, turns. `mutations` tries them."""

from contextlib import AbstractContextManager
from typing import Any

from cronledger.engine.claiming import decide, tokens
from tests.simulation.support.backend import Database
from tests.simulation.support.mistakes.mutating import function, method, statement, together


def steals_what_was_cancelled(database: Database) -> AbstractContextManager[None]:
    """A stale lease is stolen though its end was asked for."""
    return function(database, "may_be_stolen", ("AND cancel_requested_at IS NULL", ""))


def retries_in_a_pause(database: Database) -> AbstractContextManager[None]:
    """What awaits a retry starts though its job is paused."""
    return together(
        function(
            database, "lock_due_existing",
            ("AND e.next_attempt_at > coalesce(j.paused_at, '-infinity')", ""),
            ("AND (j.paused_at IS NULL OR (e.trigger = 'manual' AND e.status = 'PENDING'))", ""),
        ),
        function(
            database, "decide_existing",
            ("(j.paused_at IS NULL OR (c.forced AND c.plan > j.paused_at))", "true"),
        ),
    )  # fmt: skip


def tokens_again(_: Database) -> AbstractContextManager[None]:
    """A token that was used is offered again."""

    def make(original: Any) -> Any:
        return lambda self, used: None

    return method(tokens.Tokens, "spend", make)


def takes_retirements_for_one(database: Database) -> AbstractContextManager[None]:
    """Of several retirements, one is planned that lasts from the first to the end of the last."""
    return function(
        database, "claim_look",
        ("SELECT h.retired_at, h.returned_at FROM",
         "SELECT min(h.retired_at) AS retired_at, CASE WHEN bool_and(h.returned_at IS NOT NULL)"
         " THEN max(h.returned_at) END AS returned_at FROM"),
        ("h.returned_at > s.planned_through)", "h.returned_at > s.planned_through)"
         " HAVING count(*) > 0"),
    )  # fmt: skip


def asks_providers_out_of_turn(_: Database) -> AbstractContextManager[None]:
    """Several runners ask a provider at a time."""
    return statement("take_turn", ("cronledger_internal.take_turn(", "'' <> ("))


def starts_all_at_the_limit(_: Database) -> AbstractContextManager[None]:
    """Of one batch more start than its limited job or queue has room for."""

    def make(original: Any) -> Any:
        return lambda self, job, queue: None

    return method(decide._Decider, "_take_room", make)
