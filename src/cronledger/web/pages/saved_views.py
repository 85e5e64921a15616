"""Views of the page Ledger that a person saves under a name, and deletes."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.ledger import calls
from cronledger.web.forms import form_of
from cronledger.web.gate import DELETE_VIEW, SAVE_VIEW
from cronledger.web.links import address
from cronledger.web.pages import ledger
from cronledger.web.site import identity_of, site_of


async def save(request: Request) -> Response:
    """Save the filters of the address under a name."""
    name = (await form_of(request)).text("name").strip()
    filters = await ledger.filters_of(request)
    viewed = ledger.viewed(request, filters)
    call = calls.value_of("save_view", view=name, address=address("/ledger", viewed))
    is_new = await site_of(request).actor.call_own(call, identity_of(request))
    text = f"The view {name} is {'saved' if is_new else 'replaced'}."
    return site_of(request).done(request, text, "/ledger", **viewed)


async def delete(request: Request) -> Response:
    """Delete a view, and return to the filters of the address."""
    name = (await form_of(request)).text("name")
    filters = await ledger.filters_of(request)
    call = calls.value_of("delete_view", view=name)
    was_there = await site_of(request).actor.call_own(call, identity_of(request))
    text = (
        f"The view {name} {'is' if was_there else 'was'} deleted{'' if was_there else ' already'}."
    )
    return site_of(request).done(request, text, "/ledger", **ledger.viewed(request, filters))


ROUTES = [
    Route(SAVE_VIEW, save, methods=["POST"]),
    Route(DELETE_VIEW, delete, methods=["POST"]),
]
