"""Identities: the name of a person or program, and what it may do on the page."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from starlette.requests import HTTPConnection


class Role(StrEnum):
    """A viewer reads. An operator reads, also payloads and results, and acts."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a request. `name` is the `requested_by` of what it does."""

    name: str
    role: Role
    bearer: bool = False
    """It proved itself by a Bearer token, which no other site can make a browser send."""

    @property
    def is_operator(self) -> bool:
        return self.role is Role.OPERATOR


class RefusedRequestError(Exception):
    """This request is not served. The message states why, for the person who sent it."""


class Access(ABC):
    """One way of learning who sends a request."""

    signs_in = False
    """Whether the page has a form for signing in."""

    @abstractmethod
    async def identify(self, request: HTTPConnection) -> Identity | None:
        """Return the sender; None: nobody has signed in.

        Raises RefusedRequestError, and psycopg.Error if the database cannot tell.
        """

    async def close(self) -> None:  # noqa: B027 - most accesses have nothing to close
        """Close connections."""


Identify = Callable[[HTTPConnection], Identity | Awaitable[Identity | None] | None]
"""The function of a program that embeds the page. None refuses the request."""
