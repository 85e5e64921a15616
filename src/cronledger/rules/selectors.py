"""Labels of runners, and the selectors of jobs: `jobs.on`.

A label is a text KEY=VALUE. A selector is a list of labels. It selects the runners that have all of
them. Each runner has the label `host`.
"""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

HOST = "host"
MOST = 50
PATTERN = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?=[A-Za-z0-9]([A-Za-z0-9._:@/+-]*[A-Za-z0-9])?"
_LONGEST = 200


def labels(value: Any) -> tuple[str, ...]:
    """Return the labels of a text such as `role=web,dc=fra`, or of a list, in order.

    Raises ValueError if a label is invalid, or if two have the same name.
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{value!r} is neither a text nor a list; use for example role=web,dc=fra")
    found = sorted({part.strip() for part in parts})
    for label in found:
        if not _is_label(label):
            raise ValueError(
                f"{label!r} is not a label; use KEY=VALUE, such as role=web: letters, digits and "
                f"._/- that begin and end with a letter or digit, at most {_LONGEST} characters"
            )
    names = [name_of(label) for label in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{value!r} has two values of {twice}; use one, because all must match")
    if len(found) > MOST:
        raise ValueError(f"{len(found)} labels are too many; use at most {MOST}")
    return tuple(found)


def own_labels(value: Any) -> tuple[str, ...]:
    """Return the labels of the setting `labels`. Raises ValueError as `labels` does."""
    found = labels(value or ())
    if any(name_of(label) == HOST for label in found):
        raise ValueError(f"{HOST} is the name of the host; set CRONLEDGER_HOST instead")
    return found


def _host(value: str) -> str:
    """Return the setting `host`. Raises ValueError if it cannot be the value of a label."""
    if not _is_label(f"{HOST}={value}"):
        raise ValueError(
            f"{value!r} cannot be the value of the label {HOST}; set CRONLEDGER_HOST to letters, "
            f"digits and ._:@/+- that begin and end with a letter or digit, at most "
            f"{_LONGEST - len(f'{HOST}=')} characters"
        )
    return value


def _is_label(text: str) -> bool:
    return len(text) <= _LONGEST and re.fullmatch(PATTERN, text) is not None


def name_of(label: str) -> str:
    """Return the name of a label."""
    return label.partition("=")[0]


def _selector(value: Any) -> Any:
    return None if value is None or value in ((), []) else labels(value)


Selector = Annotated[
    Annotated[tuple[str, ...], Field(max_length=MOST)] | None,
    BeforeValidator(_selector),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": f"^{PATTERN}( *, *{PATTERN})*$"},
                {"type": "array", "items": {"type": "string", "pattern": f"^{PATTERN}$"}},
            ]
        }
    ),
]
"""Labels that a runner must have, all of them. An empty list is none."""
OwnLabels = Annotated[tuple[str, ...], BeforeValidator(own_labels)]
"""The labels of a runner, without that of its host."""
HostName = Annotated[
    str,
    AfterValidator(_host),
    WithJsonSchema({"type": "string", "pattern": f"^{PATTERN.partition('=')[2]}$"}),
]
"""The name of a host, which is the value of the label of each runner on it."""
