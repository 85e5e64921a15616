"""The web page: a viewer reads the ledger, and an operator acts on it. Needs the extra `web`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronledger.web.application import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    # Imported when used, because the extra may be missing.
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cronledger.web.application import create_app  # noqa: PLC0415

    return create_app
