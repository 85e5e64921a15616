"""The events of a replica: each has reactions, and is emitted in the thread that they expect."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cronledger.declaring.app import App, Context
from cronledger.engine.event import Event
from cronledger.engine.runtime.assembly import Components
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.waiting import eventually


def events(components: Components) -> Iterator[tuple[str, Event[Any]]]:
    """Return the events of all components by name."""
    for name, component in vars(components).items():
        # A dataclass with slots has no __dict__.
        for attribute in getattr(component, "__dict__", getattr(component, "__slots__", ())):
            if isinstance(event := getattr(component, attribute, None), Event):
                yield f"{name}.{attribute}", event


async def test_every_event_has_a_reaction(ledger: Ledger) -> None:
    async with ledger.replica(App("app")) as replica:
        found = dict(events(replica._runtime.components))
        assert {"finisher.written", "lifecycle.changed", "lifespans.ended"} <= found.keys()
        assert [name for name, event in found.items() if not event.reactions] == []


@pytest.mark.long
async def test_only_the_heartbeats_emit_events_in_another_thread(ledger: Ledger) -> None:
    app, threads = App("app"), defaultdict[str, set[str]](set)

    @app.job()
    def job(ctx: Context) -> None:
        extended.wait()

    extended = threading.Event()

    def noted(name: str) -> Callable[..., None]:
        return lambda *_, **__: threads[name].add(threading.current_thread().name)

    async with live(ledger, app, slots=1, poll_interval="1s") as replica:
        components = replica._runtime.components
        for name, event in events(components):
            event.then(noted(name), *event.reactions)
        ledger.trigger("job")
        await eventually("it listens", lambda: threads["listener.notified"])
        await eventually("it runs", lambda: threads["executor.begun"])
        components.heartbeats.renew_now()
        await eventually("it is extended", lambda: threads["heartbeats.extended"])
        extended.set()
        await eventually("it is written", lambda: threads["finisher.written"])
    own = threading.current_thread().name
    assert threads.pop("heartbeats.extended") == {"heartbeats"}
    assert {"dispatcher.leased", "executor.begun", "listener.notified"} <= threads.keys()
    assert set().union(*threads.values()) == {own}
