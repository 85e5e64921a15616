"""Bodies that blocking programs share with those that have an event loop."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from cronledger.ledger.blocking import completed, entered, result


def test_a_body_with_blocking_objects_needs_no_event_loop() -> None:
    left: list[str] = []

    @contextmanager
    def blocking() -> Iterator[int]:
        try:
            yield 3
        finally:
            left.append("left")

    async def body() -> int:
        async with entered(blocking()) as number, entered(nullcontext(4)) as other:
            assert left == []
            return await result(number) + other

    assert completed(body()) == 7
    assert left == ["left"]
    left.clear()
    assert asyncio.run(body()) == 7


def test_an_error_passes_through_the_context_managers() -> None:
    async def body() -> None:
        async with entered(pytest.raises(KeyError)):
            raise KeyError
        raise ValueError("after it")

    with pytest.raises(ValueError, match="after it"):
        completed(body())


def test_a_body_that_suspends_is_an_error() -> None:
    async def body() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="outside of an event loop"):
        completed(body())
