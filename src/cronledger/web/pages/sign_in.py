"""The form in which a person enters a token."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cronledger.web.access.tokens import TokenAccess
from cronledger.web.forms import form_of
from cronledger.web.gate import SIGN_IN, SIGN_OUT
from cronledger.web.links import Links, local_path, root_of
from cronledger.web.site import IDENTITY, frame_of


async def show(request: Request) -> Response:
    """Return the form. Who has signed in already gets the page that was asked for."""
    _access(request)
    wanted = local_path(request.query_params.get("next", "/"))
    if request.scope["state"][IDENTITY] is not None:
        return RedirectResponse(root_of(request) + wanted, 303)
    return frame_of(request).plain(
        request,
        "sign_in.html",
        wanted=wanted,
        wrong=False,
    )


async def enter(request: Request) -> Response:
    """Begin a session for a known token, and return to the page that was asked for."""
    access = _access(request)
    form = await form_of(request)
    wanted, token = local_path(form.text("next")), form.text("token").strip()
    if access.of(token) is None:
        return frame_of(request).plain(
            request, "sign_in.html", status=403, wanted=wanted, wrong=True
        )
    response = RedirectResponse(root_of(request) + wanted, 303)
    await access.remember(response, request, token)
    return response


async def leave(request: Request) -> Response:
    """End the session of the browser."""
    access = _access(request)
    response = RedirectResponse(Links(request)(SIGN_IN), 303)
    await access.forget(response, request)
    return response


def _access(request: Request) -> TokenAccess:
    """Return the access by tokens. Raises HTTPException if people sign in elsewhere."""
    access = frame_of(request).access
    if not isinstance(access, TokenAccess):
        raise HTTPException(404)
    return access


ROUTES = [
    Route(SIGN_IN, show, methods=["GET"]),
    Route(SIGN_IN, enter, methods=["POST"]),
    Route(SIGN_OUT, leave, methods=["POST"]),
]
