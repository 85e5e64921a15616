"""Access by the sign-in of the program that embeds the page."""

from inspect import isawaitable

from starlette.requests import HTTPConnection

from cronledger.web.access.identity import Access, Identify, Identity, RefusedRequestError


class EmbeddedAccess(Access):
    """Asks the function that `create_app(identify=…)` received."""

    def __init__(self, identify: Identify) -> None:
        self._identify = identify

    async def identify(self, request: HTTPConnection) -> Identity:
        found = self._identify(request)
        if isawaitable(found):
            found = await found
        if found is None:
            raise RefusedRequestError("You are not permitted to see this page.")
        return found
