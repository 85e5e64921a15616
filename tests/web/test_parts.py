"""Parts of a page: what changes their digest."""

from datetime import UTC, datetime, timedelta

import pytest
from jinja2 import Environment

from cronledger.web import formats
from cronledger.web.parts import Part, part

SINCE = datetime(2026, 11, 22, 3, tzinfo=UTC)


def digest(inside: str, element: str = '<p id="one">') -> str:
    """The digest of an element with this content."""
    environment = Environment(autoescape=True)
    environment.filters["part"] = part
    template = environment.from_string(
        f"{{% filter part %}}\n{element}{inside}</p>{{% endfilter %}}"
    )
    parts: dict[str, Part] = {}
    rendered = template.render(parts=parts)
    assert f'id="one" data-part="{parts["one"].digest}"' in rendered
    return parts["one"].digest


def test_an_age_that_grows_does_not_change_a_part() -> None:
    young, old = (formats.age(SINCE, SINCE + timedelta(minutes=m)) for m in (3, 4))
    assert "3 min ago" in young and "4 min ago" in old
    assert digest(young) == digest(old)
    assert digest(young) != digest(formats.age(SINCE + timedelta(seconds=1), SINCE))
    assert digest("running") != digest("ended")


def test_a_part_needs_an_id() -> None:
    assert digest("", '<p class="a" id="one" hidden>')
    with pytest.raises(ValueError, match="A part is one element with an id"):
        digest("", '<p data-id="one">')


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (-90_000, "1 d 1 h")],
)
def test_an_age_has_its_greatest_units(seconds: float, words: str) -> None:
    shown = formats.age(SINCE, SINCE + timedelta(seconds=seconds))
    assert (f">{words} ago<" if seconds >= 0 else f">in {words}<") in shown
