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
def method(owner: type | ModuleType, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """A method wrapped: `make` takes the original and answers what stands in its place."""
    original = getattr(owner, name)
    made, used = make(original), []

    def called(*args: Any, **more: Any) -> Any:
        used.append(name)
        return made(*args, **more)

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
