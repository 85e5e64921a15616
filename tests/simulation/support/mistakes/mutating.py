"""How a mistake is made in the engine or its SQL for a while, and that it was really made."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

from cronledger.ledger import queries
from tests.simulation.support.backend import Database
from tests.simulation.support.mistakes.text_anchors import AnchorError, definition, replaced


@contextmanager
def statement(name: str, *changes: tuple[str, str]) -> Iterator[None]:
    """The statement of sql/NAME.sql with texts replaced."""
    original = queries.encoded
    changed = replaced(queries.text(name, "cronledger"), *changes).encode()
    used = []

    def encoded(asked: str, schema: str) -> bytes:
        if asked == name:
            used.append(asked)
            return changed
        return original(asked, schema)

    with mock.patch.object(queries, "encoded", encoded):
        yield
    if not used:
        raise AnchorError(f"{name}.sql was never sent")


@contextmanager
def function(database: Database, name: str, *changes: tuple[str, str]) -> Iterator[None]:
    """A function of the schema with texts replaced; as it was afterwards."""
    before = definition(database.eye, name)
    database.eye.execute(replaced(before, *changes).encode())
    try:
        yield
    finally:
        database.eye.execute(before.encode())


@contextmanager
def method(owner: type | ModuleType, name: str, mistake: Callable[..., Any]) -> Iterator[None]:
    """`mistake` in place of a method, which it takes as its first argument."""
    original = getattr(owner, name)
    used = []

    def called(*args: Any, **more: Any) -> Any:
        used.append(name)
        return mistake(original, *args, **more)

    with mock.patch.object(owner, name, called):
        yield
    if not used:
        raise AnchorError(f"{owner.__name__}.{name} was never called")


@contextmanager
def together(*changes: AbstractContextManager[None]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        yield


Apply = Callable[[Database], AbstractContextManager[None]]
"""Makes a mistake for as long as the context lasts."""


def in_statement(name: str, *changes: tuple[str, str]) -> Apply:
    return lambda _: statement(name, *changes)


def in_function(name: str, *changes: tuple[str, str]) -> Apply:
    return lambda database: function(database, name, *changes)


def both(*mistakes: Apply) -> Apply:
    return lambda database: together(*(mistake(database) for mistake in mistakes))
