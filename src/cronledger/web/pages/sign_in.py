"""The form in which a person enters a token."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cronledger.web.access import tokens
from cronledger.web.forms import form_of
from cronledger.web.gate import SIGN_IN, SIGN_OUT, local_path
from cronledger.web.site import Links, root_of, site_of


async def show(request: Request) -> Response:
    """Return the form."""
    return site_of(request).plain(
        request,
        "sign_in.html",
        wanted=local_path(request.query_params.get("next", "/")),
        wrong=False,
    )


async def enter(request: Request) -> Response:
    """Remember a known token in the browser, and return to the page that was asked for."""
    site = site_of(request)
    form = await form_of(request)
    wanted, token = local_path(form.text("next")), form.text("token")
    assert isinstance(site.access, tokens.TokenAccess)
    if site.access.of(token) is None:
        return site.plain(request, "sign_in.html", status=403, wanted=wanted, wrong=True)
    response = RedirectResponse(root_of(request) + wanted, 303)
    tokens.remember(response, request, token)
    return response


async def leave(request: Request) -> Response:
    """Remove the token from the browser."""
    response = RedirectResponse(Links(request)(SIGN_IN), 303)
    tokens.forget(response, request)
    return response


ROUTES = [
    Route(SIGN_IN, show, methods=["GET"]),
    Route(SIGN_IN, enter, methods=["POST"]),
    Route(SIGN_OUT, leave, methods=["POST"]),
]
