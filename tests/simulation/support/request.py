"""One statement on its way from a client to the server and back."""

import asyncio
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import psycopg

from cronledger.ledger.queries import text

_LABELS: dict[bytes, str] = {}


def label_of(query: bytes) -> str:
    """A short name for traces and faults: that of the .sql file, or the first words."""
    if not _LABELS:
        for file in (resources.files("cronledger.ledger") / "sql").iterdir():
            name = file.name.removesuffix(".sql")
            _LABELS[text(name, "cronledger").encode()] = name
    if query not in _LABELS:
        _LABELS[query] = " ".join(query.decode().replace("(", " ").split()[:3])[:40]
    return _LABELS[query]


@dataclass(eq=False)
class Request:
    """One statement on its way. `answer` is set to this request itself, with rows or error."""

    query: bytes
    params: Any
    row_factory: Any
    answer: "asyncio.Future[Request]"
    rows: list[Any] = field(default_factory=list)
    rowcount: int = -1
    error: psycopg.Error | None = None
    raised: bool = False

    @property
    def label(self) -> str:
        return label_of(self.query)

    async def result(self) -> "Request":
        done = await asyncio.shield(self.answer)
        if done.error is not None:
            done.raised = True
            raise done.error
        return done
