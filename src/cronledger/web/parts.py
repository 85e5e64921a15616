"""The parts of a page, which an open page has one by one again once they have changed.

A template marks an element that has an id: `{% filter part %}<section id="…">…{% endfilter %}`.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, Response

from cronledger.rules.instants import iso

KNOWN = "Known-Parts"
"""The header of a request with what an open page shows: `jobs=DIGEST foot=DIGEST`."""
TIME = "Database-Time"
"""The header of a response with the database's time, which is in no part."""
SENT = "Sent-Parts"
"""The header of a response: `changed`, or `all` if the page has other parts than before."""

_OPENING = re.compile(r'\s*<\w+(?P<attributes> (?:[^>]*? )?id="(?P<id>[^"]+)")')
_AGE = re.compile(r"(<time [^>]*data-age[^>]*>)[^<]*")
"""An age grows by itself: the script counts on."""


@dataclass(frozen=True, slots=True)
class Part:
    """An element of a page, and a digest of what a person would see change."""

    markup: Markup
    digest: str


@pass_context
def part(context: Context, text: str) -> Markup:
    """Return an element with its digest, and note it in `parts`, a dictionary of the context."""
    opening = _OPENING.match(text)
    if opening is None:
        raise ValueError(f"A part is one element with an id, not {text.strip()[:60]!r}.")
    digest = sha256(_AGE.sub(r"\1", text).encode()).hexdigest()[:12]
    end = opening.end("attributes")
    made = Markup(f'{text[:end]} data-part="{digest}"{text[end:]}')
    context["parts"][opening["id"]] = Part(made, digest)
    return made


def is_again(request: HTTPConnection) -> bool:
    """Return whether an open page sends this request."""
    return KNOWN in request.headers


def answer(
    request: Request, page: Response, parts: dict[str, Part], now: datetime | None
) -> Response:
    """Return the page; to an open page only the parts that it does not have, or 204 if none."""
    if not is_again(request):
        return page
    known = dict(one.partition("=")[::2] for one in request.headers[KNOWN].split())
    changed = [made for name, made in parts.items() if known.get(name) != made.digest]
    response = page
    if known.keys() == parts.keys():
        body = "".join(made.markup for made in changed)
        response = HTMLResponse(body) if changed else Response(status_code=204)
    response.headers[SENT] = "all" if response is page else "changed"
    if now is not None:
        response.headers[TIME] = iso(now)
    return response
