"""F16: how a function's `payload` parameter is found and its value validated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from cronledger.declaring.binding import bind
from cronledger.rules.problems import PayloadInvalidError

if TYPE_CHECKING:
    from cronledger.declaring.app import Context


class Order(BaseModel):
    number: int


@dataclass
class Given:
    payload: Any


def first(payload: Order) -> Any:
    return payload


def second(ctx: Context, payload: Order) -> Any:
    return payload


def by_name(ctx: Context, other: int = 1, *, payload: Order) -> Any:
    return payload


@pytest.mark.parametrize(
    "function", [first, second, by_name, partial(second), partial(by_name, other=2)]
)
def test_the_parameter_is_found_wherever_it_is(function: Callable[..., Any]) -> None:
    assert bind(function)(Given({"number": "3"})) == Order(number=3)


def test_a_default_is_used_only_without_a_payload_and_no_annotation_means_json() -> None:
    def optional(payload: int = 5) -> int:
        return payload

    assert bind(optional)(Given(None)) == 5
    assert bind(optional)(Given(0)) == 0

    def raw(payload):  # type: ignore[no-untyped-def]
        return payload

    assert bind(raw)(Given({"a": [1]})) == {"a": [1]}


@pytest.mark.parametrize(
    ("payload", "said"),
    [({}, "payload.number: Field required"), (None, "payload: Input should be an object")],
)
def test_a_refused_payload_names_the_field(payload: Any, said: str) -> None:
    with pytest.raises(PayloadInvalidError, match=said):
        bind(first)(Given(payload))


def test_a_validator_that_raises_anything_refuses_the_payload() -> None:
    class Odd(BaseModel):
        number: int

        def model_post_init(self, context: Any) -> None:
            raise KeyError("odd")

    def handler(payload: Any) -> None: ...

    handler.__annotations__["payload"] = Odd
    with pytest.raises(PayloadInvalidError, match="raised KeyError: 'odd'"):
        bind(handler)(Given({"number": 1}))


def test_a_type_that_cannot_be_validated_is_refused_at_once() -> None:
    class Plain: ...

    def wrong(payload: Any) -> None: ...

    wrong.__annotations__["payload"] = Plain
    with pytest.raises(TypeError, match="cannot be validated"):
        bind(wrong)

    def unknown(payload: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="is unknown"):
        bind(unknown)
