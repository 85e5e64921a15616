"""F40: which parameters of a handler receive what a lifespan yields, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Protocol, TypeVar

import pytest

from cronledger import App, Context
from cronledger.declaring.binding import bind
from cronledger.declaring.resources import ResourceMissingError
from cronledger.engine.apps import AppRegistry
from cronledger.rules.problems import ConfigurationError
from cronledger.testing import context

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")


class Pool(Generic[T]): ...


class Mail: ...


@dataclass
class Resources:
    main: Pool[int]
    mail: Mail
    token: str = "secret"


class Pair(NamedTuple):
    reader: Pool[int]
    writer: Pool[int]


POOL, READER, MAIL = Pool[int](), Pool[int](), Mail()
ALL = Resources(POOL, MAIL)


def whole(ctx: Context, every: Resources) -> object:
    return every


def field(pool: Pool[int]) -> object:
    return pool


def writer(writer: Pool[int]) -> object:
    return writer


def keyword(ctx: Context, *, pool: Annotated[Pool[int], "the main one"]) -> object:
    return pool


def kept(pool: Pool[int] | None = None) -> object:
    return pool


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (whole, ALL, ALL), (field, POOL, POOL), (field, {"any": POOL, "mail": MAIL}, POOL),
        (keyword, ALL, POOL), (writer, Pair(READER, POOL), POOL), (kept, ALL, None),
    ],
)  # fmt: skip
def test_a_parameter_receives_the_value_or_a_field_of_its_type(
    function: Callable[..., Any], value: Any, expected: object
) -> None:
    bound = bind(function, resources=True).provided(value)
    assert bound(context(payload=5)) is expected
    assert bound.resources is value


def both(ctx: Context, mail: Mail, payload: int) -> object:
    return ctx.job, mail, payload


def test_resources_and_a_payload_reach_one_handler() -> None:
    bound = bind(both, resources=True).provided(ALL)
    assert bound(context("j", 5)) == ("j", MAIL, 5)
    with pytest.raises(TypeError, match="or give the App a lifespan that yields it"):
        App().job()(both)


@pytest.mark.parametrize(
    ("function", "value", "said"),
    [
        (
            field,
            MAIL,
            r"`pool: Pool` matches nothing that the lifespan yields, which is Mail;.*"
            "or name the parameter `payload` if it is to receive the payload",
        ),
        (field, Pair(READER, POOL), "could receive `reader` or `writer` of the lifespan's value"),
    ],
)
def test_nothing_or_too_much_that_fits_is_an_error(
    function: Callable[..., Any], value: Any, said: str
) -> None:
    with pytest.raises(ResourceMissingError, match=said) as raised:
        bind(function, resources=True).provided(value)
    assert "secret" not in str(raised.value)


def unknown(rate: Decimal) -> None: ...


def untyped(pool) -> None: ...  # type: ignore[no-untyped-def]


def positional(pool: Pool[int], /) -> None: ...


class Sends(Protocol):
    def send(self) -> None: ...


def unchecked(mail: Sends) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unknown, "the type of `rate`, 'Decimal', is unknown"),
        (untyped, "or annotate it with the type of a resource"),
        (positional, "`pool`, which a handler does not receive"),
        (unchecked, "which is not a class"),
    ],
)
def test_a_parameter_that_cannot_be_a_resource_is_refused(
    function: Callable[..., Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        App(lifespan=entered).job()(function)


@asynccontextmanager
async def entered(app: App) -> AsyncIterator[Resources]:
    yield ALL


async def undecorated(app: App) -> AsyncIterator[Resources]:
    yield ALL


@asynccontextmanager
async def without_the_app() -> AsyncIterator[Resources]:
    yield ALL


@pytest.mark.parametrize(
    ("lifespan", "said"),
    [
        (undecorated, "decorate it with `@asynccontextmanager`"),
        (without_the_app, "cannot be called with the App"),
    ],
)
def test_a_wrong_lifespan_is_refused(lifespan: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        App(lifespan=lifespan)


def test_a_registry_claims_for_an_app_once_it_has_resources() -> None:
    app = App("shop", lifespan=entered)
    app.job()(field)
    app.job()(writer)
    registry = AppRegistry({})
    registry.add(app)
    assert registry.claimable == set()
    with pytest.raises(ConfigurationError) as raised:
        registry.provide(app, Pair(READER, POOL))
    (problem,) = raised.value.problems
    assert (problem.where, problem.remedy) == (
        f"{__name__}:field", "give the parameter the name of one of them",
    )  # fmt: skip
    assert registry.claimable == set()
    registry.provide(app, ALL)
    assert registry.claimable == {f"{__name__}:field", f"{__name__}:writer"}
    registry.withhold(app)
    assert registry.claimable == set()
    assert app in registry


def test_a_function_of_two_apps_has_no_lifespan() -> None:
    one, two = App("one", lifespan=entered), App("two")
    one.job(name="a")(kept)
    two.job(name="b")(kept)
    registry = AppRegistry({})
    registry.add(two)
    with pytest.raises(ConfigurationError, match="declared twice, and an App with a lifespan"):
        registry.add(one)
