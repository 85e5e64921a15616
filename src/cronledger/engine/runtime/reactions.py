"""The reactions of a runner: each event of its components, and what reacts to it.

`a.b.then(c, d)`: when `a` reports `b`, `c` reacts to it and then `d`, before `a` goes on. So
reactions do not wait. Components do not know each other's reactions: they are connected only here.

Threads: the event loop of the runner emits every event, except `heartbeats.extended`, which the
thread of the heartbeats emits, and `executor.reported`, which handlers emit from their threads.
Only the reactions to these have to be thread-safe.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cronledger.engine.running import attempt_spans
from cronledger.engine.running.ended import Ended
from cronledger.engine.runtime.assembly import Components
from cronledger.ledger.rows import CheckInReply
from cronledger.rules.model import Status

Notifications = Mapping[str, Sequence[Callable[[], object]]]


def connect(p: Components) -> None:
    """Connect the events of the components with their reactions."""
    check_in, claim, deliver, listen, provide, sweep = (
        partial(p.loops.wake, loop)
        for loop in ("check_in", "dispatcher", "deliveries", "listener", "scopes", "sweeper")
    )
    gates = partial(p.loops.wake, "gates")

    search = p.dispatcher.search_all

    # The database. A check-in detects its return, and restores the trust in its clock.
    p.pool.moved = p.loops.unreachable  # to another server
    p.loops.unreachable.then(p.clock.distrust, search, check_in)
    p.loops.suspected.then(check_in)
    p.loops.recovered.then(listen)
    p.check_ins.checked_in.then(
        plain(p.loops.answered),
        plain(p.lifecycle.forget_functions),
        p.sweeper.checked_in,
        p.monitoring.checked_in,
        partial(_note_alerts, p),
        p.dispatcher.checked_in,
        p.gates.checked_in,
    )
    p.dispatcher.due_within.then(partial(p.loops.wake_within, "dispatcher"))
    p.gates.due_within.then(partial(p.loops.wake_within, "gates"))
    p.sweeper.due_within.then(partial(p.loops.wake_within, "sweeper"))
    p.output.due_within.then(partial(p.loops.wake_within, "output"))

    # Notifications. Those from before the start of LISTEN are lost, so `connected` does everything.
    deliver_surely, renew = p.deliveries.request, p.heartbeats.renew_now
    reconsider = p.peers.reconsider, p.dispatcher.reconsider
    notifications: Notifications = {
        "alerts": (deliver_surely,),
        "queues": (deliver, search, claim),
        "rearmed": (search, claim),
        "gates": (gates,),
        "jobs": (deliver, claim, *reconsider),
        "cancel": (claim, renew),
        "accepted": (deliver, claim, *reconsider, sweep),
        "connected": (deliver_surely, claim, *reconsider, sweep, renew, gates),
        "": (claim,),  # any other
    }
    if p.listener is not None:
        p.listener.notified.then(partial(_notified, p, notifications))
        p.listener.lost.then(check_in, claim)  # from now on, polls wake the dispatcher

    # Executions, from the claim to the committed outcome.
    p.dispatcher.claimed.then(p.measuring.claimed)
    p.dispatcher.gated.then(gates)
    p.dispatcher.leased.then(p.executor.start)
    p.executor.added.then(p.heartbeats.added)
    p.executor.reported.then(p.heartbeats.reported)  # in the thread of the handler
    p.executor.begun.then(p.monitoring.started)
    p.heartbeats.extended.then(p.supervisor.extend)  # in the thread of the heartbeats
    p.executor.freed.then(p.dispatcher.slot_freed)
    p.finisher.rearmed.then(search)
    p.finisher.unblocked.then(claim)
    p.finisher.gates.then(gates)
    p.gates.opened.then(claim)
    p.finisher.written.then(
        plain(p.dispatcher.slot_freed),
        p.manual.ended,
        p.measuring.written,
        partial(_note_failures, p),
        partial(attempt_spans.end, lost=False),
        partial(_report_ends, p),
        p.drain.ended,
    )
    for lost in (p.executor.lost, p.finisher.lost):
        lost.then(p.measuring.lost, partial(attempt_spans.end, lost=True))

    # Maintenance, alerts, and the functions of this runner, which other runners have to know.
    p.sweeper.rearmed.then(search, claim)
    p.sweeper.gates.then(gates)
    p.sweeper.swept.then(p.monitoring.swept)
    p.alerts.raised.then(deliver)
    p.lifespans.ended.then(check_in)
    p.lifecycle.unregistered.then(renew)  # the replies contain the requests to cancel
    p.lifecycle.changed.then(p.sweeper.full_round, p.dispatcher.reconsider, sweep, provide, claim)


def plain(reaction: Callable[[], object]) -> Callable[[object], object]:
    """Return the reaction without the value that its event reports."""
    return lambda _: reaction()


def _notified(p: Components, notifications: Notifications, payload: str) -> None:
    if p.output.followed.note(payload):
        p.executor.followed()
    elif not p.awaited.note(payload):
        for reaction in notifications.get(payload, notifications[""]):
            reaction()


def _note_alerts(p: Components, reply: CheckInReply) -> None:
    p.alerts.note(watching=reply.alerts)
    p.deliveries.note(watching=reply.alerts)


def _note_failures(p: Components, ended: Sequence[Ended]) -> None:
    if any(x.outcome.status is Status.FAILED for x in ended):
        p.alerts.failed()


def _report_ends(p: Components, ended: Sequence[Ended]) -> None:
    for x in ended:
        p.monitoring.ended(x.lease, x.outcome, release=x.release, duration_ms=x.duration_ms)
