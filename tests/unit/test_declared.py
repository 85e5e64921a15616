"""The methods that `@app.job` gives a function. The function stays what it was."""

import asyncio
import copy
import inspect
import pickle
import subprocess
import sys
from functools import partial, wraps
from typing import Any

import pytest

from cronledger import App, Context
from cronledger.binding import bind
from cronledger.declared import METHODS, JobCalls

app = App("declared")


@app.job("@daily")
def tidy(ctx: Context, payload: int = 3) -> int:
    """Tidy up."""
    return payload


@app.job()
async def ship(payload: list[int]) -> int:
    return sum(payload)


def test_the_function_is_callable_as_before() -> None:
    ctx: Any = None
    assert (tidy(ctx), tidy(ctx, 4), tidy(ctx=ctx, payload=5)) == (3, 4, 5)
    assert asyncio.run(ship([1, 2])) == 3
    function: Any = tidy
    assert inspect.isfunction(function)
    assert [inspect.iscoroutinefunction(one) for one in (ship, tidy)] == [True, False]
    assert (tidy.__name__, tidy.__doc__) == ("tidy", "Tidy up.")
    assert list(inspect.signature(tidy).parameters) == ["ctx", "payload"]
    assert pickle.loads(pickle.dumps(tidy)) is tidy
    assert copy.deepcopy(ship) is ship
    assert bind(ship).is_async


def test_it_has_the_methods_of_its_job() -> None:
    for name in METHODS:
        method = getattr(tidy, name)
        assert isinstance(method.__self__, JobCalls)
        assert method.__doc__
        assert inspect.iscoroutinefunction(method) == name.endswith("_async")
    assert vars(tidy).keys() == set(METHODS)


def test_what_is_not_a_function_stays_as_it_is() -> None:
    class Handlers:
        def method(self, ctx: Context) -> str:
            return "method"

        def __call__(self) -> str:
            return "called"

        def enqueue(self) -> str:
            return "own"

    others = App("others")
    handlers = Handlers()
    given: dict[str, Any] = {
        "method": handlers.method, "object": handlers, "partial": partial(tidy, payload=4),
    }  # fmt: skip
    for name, function in given.items():
        assert others.job(name=name)(function) is function
    assert handlers.enqueue() == "own"
    assert pickle.loads(pickle.dumps(given["partial"]))(None) == 4
    assert others.handlers == given


def test_a_decorator_around_a_declared_function_makes_another_function() -> None:
    @wraps(tidy)
    def around(ctx: Context) -> int:
        return 2 * tidy(ctx)

    other = App("other").job(name="around")(around)
    calls: Any = other.enqueue
    assert calls.__self__.jobs.keys() == {"around"}
    inner: Any = tidy.enqueue
    assert inner.__self__.jobs.keys() == {"tidy"}


def test_declaring_imports_no_driver() -> None:
    program = """
import sys
from cronledger import App
@App().job()
def work(payload: int) -> None: ...
assert work.enqueue
heavy = {"psycopg", "django", "sqlalchemy", "cronledger.ledger"} & set(sys.modules)
assert not heavy, heavy
import cronledger.client
heavy = {"django", "sqlalchemy", "asyncpg", "aiohttp"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_call_needs_a_connection() -> None:
    untyped: Any = tidy
    with pytest.raises(TypeError, match="conn"):
        untyped.enqueue(3)
