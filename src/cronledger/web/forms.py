"""Forms that the page receives."""

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request

from cronledger.web import queries

MOST_BYTES = 4 * 1024 * 1024
"""Enough for the names of 10,000 jobs."""
MOST_FIELDS = 20_000


class Form:
    """The fields of a form. A missing field is empty."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Return a field as it is: blanks are part of a name. Raises HTTPException if repeated."""
        values = self.texts(name)
        if len(values) > 1:
            raise HTTPException(400, f"The field {name} occurs more than once.")
        return values[0] if values else ""

    def moment(self, name: str) -> str:
        """Return the text of an instant, or an empty one. Raises HTTPException."""
        return queries.moment(self.texts, name)

    def texts(self, name: str) -> list[str]:
        """Return all values of a field."""
        return self._fields.get(name, [])

    def starting_with(self, prefix: str) -> dict[str, str]:
        """Return the fields whose names begin with `prefix`, by the rest of the name.

        Their surrounding blanks are kept. Raises HTTPException if one is repeated.
        """
        found = {}
        for name, values in self._fields.items():
            if name.startswith(prefix):
                self.text(name)
                found[name.removeprefix(prefix)] = values[0]
        return found

    def whole(self, name: str) -> int:
        """Return a field that is a whole number. Raises HTTPException."""
        return whole(self.text(name), name)


async def form_of(request: Request) -> Form:
    """Return the form in the body of a request. Raises HTTPException."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"The form is larger than {MOST_BYTES:,} bytes.")
    try:
        return Form(
            parse_qs(
                body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
            )
        )
    except ValueError:
        raise HTTPException(400, "The body is not a form in UTF-8.") from None


def whole(text: str, name: str) -> int:
    """Return the whole number in `text`. Raises HTTPException, which has `name`."""
    text = text.strip()
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20:
        number = int(text)
        if -(2**63) <= number < 2**63:
            return number
    raise HTTPException(400, f"{name} is not a whole number: {text[:100]!r}.")
