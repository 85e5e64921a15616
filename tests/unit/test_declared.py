"""The handles that `@app.job` returns. A function stays what it was."""

import asyncio
import copy
import inspect
import pickle
from functools import partial, wraps
from typing import Any

import pytest

from cronledger import App, Context
from cronledger.declaring.binding import bind
from cronledger.declaring.handles import METHODS, JobHandle, job_of
from cronledger.rules.problems import PayloadInvalidError

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
        assert isinstance(method.__self__, JobHandle)
        assert method.__doc__
        assert inspect.iscoroutinefunction(method) == name.endswith("_async")
    assert vars(tidy).keys() == set(METHODS)


def region(payload: str = "") -> str:
    """Synchronize a region."""
    return f"synchronized {payload}"


async def relay(payload: str) -> str:
    return payload


eu = app.job("@every 90s", name="sync-eu", payload="eu")(region)
us = app.job("@every 90s", name="sync-us", payload="us")(region)
relays = [app.job(name=f"relay-{number}")(relay) for number in range(2)]


@app.job("@daily", name="outer")
@app.job("@hourly", name="inner")
async def stacked() -> str:
    return "stacked"


def jobs_of(*handles: Any) -> list[str]:
    return [job.name for handle in handles if (job := job_of(handle)) is not None]


def test_each_declaration_of_a_function_has_a_handle_of_its_own() -> None:
    assert jobs_of(eu, us, *relays, stacked) == [
        "sync-eu", "sync-us", "relay-0", "relay-1", "outer",
    ]  # fmt: skip
    for handle, name in ((eu, "sync-eu"), (us, "sync-us")):
        for method in METHODS:
            assert getattr(handle, method).__self__.job is app.jobs[name]
    assert app.handlers["sync-eu"] is app.handlers["sync-us"] is region
    assert app.handlers["inner"] is app.handlers["outer"]
    again = App("again").job(name="again")(us)
    assert jobs_of(again, us, eu) == ["again", "sync-us", "sync-eu"]
    assert repr(us) == f"<job 'sync-us' of {__name__}:region>"


def test_a_handle_is_called_and_bound_like_its_function() -> None:
    assert [handle("x") for handle in (eu, us, region)] == ["synchronized x"] * 3
    assert asyncio.run(relays[1]("x")) == "x"
    assert asyncio.run(stacked()) == "stacked"
    handle: Any = us
    assert (us.__qualname__, handle.__doc__) == ("region", "Synchronize a region.")
    assert list(inspect.signature(us).parameters) == ["payload"]
    assert inspect.unwrap(handle) is region
    asynchronous: Any = relays[1]
    assert inspect.iscoroutinefunction(asynchronous.__call__)
    assert not inspect.iscoroutinefunction(handle.__call__)
    bound = bind(relays[1])
    assert (bound.function, bound.is_async) == (relay, True)


def test_a_handle_is_pickled_as_its_function_is() -> None:
    assert pickle.loads(pickle.dumps(eu)) is eu
    assert pickle.loads(pickle.dumps(stacked)) is stacked
    handles: list[Any] = [us, relays[1], copy.deepcopy(us)]
    for handle in handles:
        again = pickle.loads(pickle.dumps(handle))
        assert type(again) is type(handle)
        assert (again.job, again.function) == (handle.job, handle.function)
    enqueue: Any = us.enqueue
    again = pickle.loads(pickle.dumps(enqueue))
    assert again.__self__.job == app.jobs["sync-us"]
    with pytest.raises(PayloadInvalidError, match="job 'sync-us' would refuse the payload"):
        again(3, conn=None)

    def local() -> None: ...

    for name in ("one", "two"):
        unnamed = App().job(name=name)(local)
    with pytest.raises((pickle.PicklingError, AttributeError), match="local"):
        pickle.dumps(unnamed)


def test_callables_that_are_not_functions_keep_their_behaviour() -> None:
    class Handlers:
        name = "of the class"

        def method(self, ctx: Context) -> str:
            """Call the method."""
            return "method"

        def __call__(self) -> str:
            return "called"

        def enqueue(self) -> str:
            return "own"

    others = App("others")
    handlers = Handlers()
    method: Any = others.job(name="method")(handlers.method)
    called: Any = others.job(name="object")(handlers)
    part: Any = others.job(name="partial")(partial(tidy, payload=4))
    assert jobs_of(method, called, part) == ["method", "object", "partial"]
    assert (method(None), called(), part(None)) == ("method", "called", 4)
    names = [one.__qualname__.rpartition("<locals>.")[2] for one in (method, called, part)]
    assert names == ["Handlers.method", "Handlers", "tidy"]
    assert method.__doc__ == "Call the method."
    # Attributes of its own are those of the object.
    assert called.name == "of the class"
    with pytest.raises(AttributeError, match="absent"):
        print(called.absent)
    assert handlers.enqueue() == "own"
    assert pickle.loads(pickle.dumps(part))(None) == 4


def test_a_decorator_around_a_declared_function_makes_another_function() -> None:
    @wraps(tidy)
    def around(ctx: Context) -> int:
        return 2 * tidy(ctx)

    other: Any = App("other").job(name="around")(around)
    assert other is around
    assert jobs_of(other, tidy) == ["around", "tidy"]

    @wraps(us)
    def again(payload: str) -> str:
        return us(payload)

    assert job_of(again) is None
    assert jobs_of(App("other").job(name="again")(again), us) == ["again", "sync-us"]
