"""F25: a cancellation scope that handlers share with their helpers."""

import gc
import threading
import weakref
from unittest import mock

import pytest

from cronledger.declaring.app import Cancelled, CancelToken


def test_cancelling_reaches_all_below_and_none_above() -> None:
    root = CancelToken()
    one, other = root.child(), root.child()
    below = one.child()
    one.cancel()
    assert [x.cancelled for x in (root, one, other, below)] == [False, True, False, True]
    with pytest.raises(Cancelled):
        below.check()
    other.check()
    assert (one.wait(), other.wait(0)) == (True, False)
    root.cancel()
    root.cancel()
    assert other.cancelled
    assert root.child().cancelled


def test_a_block_cancels_its_helpers_when_it_ends() -> None:
    root = CancelToken()
    ended = []

    def helper(scope: CancelToken) -> None:
        ended.append(scope.wait(90))

    with pytest.raises(ValueError, match="the block failed"), root.child() as helpers:
        thread = threading.Thread(target=helper, args=[helpers])
        thread.start()
        raise ValueError("the block failed")
    thread.join(90)
    assert ended == [True]
    assert not root.cancelled


def test_a_lease_that_has_ended_cancels_the_token() -> None:
    """A thread that asks learns that the lease has ended, though no other thread got to say so."""
    over = threading.Event()
    root = CancelToken(over.is_set)
    below = root.child()
    assert [x.cancelled for x in (root, below)] == [False, False]
    over.set()
    assert [x.cancelled for x in (root, below, below.child())] == [True, True, True]
    assert below.wait(0)
    with pytest.raises(Cancelled):
        below.check()


def test_children_that_nobody_holds_are_forgotten() -> None:
    root = CancelToken()
    gone = weakref.ref(root.child())
    gc.collect()
    assert gone() is None


def test_children_made_beside_a_cancel_are_cancelled() -> None:
    for _ in range(50):
        root, made = CancelToken(), list[CancelToken]()
        go = threading.Barrier(2)

        def make(
            root: CancelToken = root, made: list[CancelToken] = made, go: threading.Barrier = go
        ) -> None:
            go.wait()
            made.extend(root.child() for _ in range(20))

        thread = threading.Thread(target=make)
        thread.start()
        go.wait()
        root.cancel()
        thread.join()
        assert all(child.cancelled for child in made)


def test_a_cancel_inside_of_another_token_does_not_hang() -> None:
    """As when the garbage collector ends the `with` block of a token while this one works."""
    outer, inner = CancelToken(), CancelToken()

    class Event(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            inner.cancel()

    with mock.patch("cronledger.declaring.cancellation.threading.Event", Event):
        waiting = threading.Thread(target=outer.wait, args=[0.0], daemon=True)
        waiting.start()
        waiting.join(60)
    assert not waiting.is_alive()
    assert inner.cancelled
