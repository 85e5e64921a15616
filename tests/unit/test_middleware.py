"""F41: which middleware an App accepts for which handlers."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cronledger import App, Context, Middleware
from cronledger.engine.apps import AppRegistry
from cronledger.rules.problems import ConfigurationError


def around(ctx: Context, call_next: Callable[[], Any]) -> Any:
    return call_next()


async def around_async(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    return await call_next()


class Counting:
    def __call__(self, ctx: Context, call_next: Callable[[], Any]) -> Any:
        return call_next()


def handler() -> None: ...


async def handler_async() -> None: ...


BOTH = Middleware(sync=around, asynchronous=around_async)


def test_each_handler_has_the_middleware_of_its_kind() -> None:
    app, inner = App(middleware=[BOTH]), Counting()
    app.job()(handler_async)
    app.job(middleware=[inner])(handler)
    assert app.bound["handler"].middleware == (around, inner)
    assert app.bound["handler_async"].middleware == (around_async,)


@pytest.mark.parametrize(
    ("middleware", "function", "said"),
    [
        (Counting(), handler_async, r"middleware \S+:Counting is a `def`, and the handler"),
        (around_async, handler, r"handler \S+:handler is a `def`; give both kinds: Middleware\("),
    ],
)
def test_middleware_of_the_other_kind_is_refused_when_it_is_declared(
    middleware: Any, function: Callable[..., Any], said: str
) -> None:
    for app, inside in ((App(middleware=[middleware]), []), (App(), [middleware])):
        with pytest.raises(TypeError, match=said):
            app.job(middleware=inside)(function)
        assert dict(app.jobs) == {}


@pytest.mark.parametrize(
    ("middleware", "said"),
    [
        (around, "is not a list"),
        ([handler], "with the parameters `ctx, call_next`"),
        ([Counting], "is not a middleware"),
    ],
)
def test_a_value_that_is_not_middleware_is_refused(middleware: Any, said: str) -> None:
    for declare in (App, App().job):
        with pytest.raises(TypeError, match=said):
            declare(middleware=middleware)


def test_a_pair_has_one_function_of_each_kind() -> None:
    with pytest.raises(
        TypeError, match=r"Middleware\(sync=…\): \S+ is an `async def`; use a `def`"
    ):
        Middleware(sync=around_async, asynchronous=around_async)
    with pytest.raises(TypeError, match=r"Middleware\(asynchronous=…\): \S+ is a `def`; use an"):
        Middleware(sync=around, asynchronous=around)


def test_one_function_has_one_list_of_middleware() -> None:
    app = App()
    app.job(name="a", middleware=[around])(handler)
    app.job(name="b")(handler)
    with pytest.raises(ConfigurationError, match="declared twice, with different middleware"):
        AppRegistry({}).add(app)
