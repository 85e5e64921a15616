"""Connections and sessions of other libraries on the ledger of a test."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import sqlalchemy
from django.db import connections
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.db.support.django_process import on_database

DRIVER = "postgresql+psycopg://"


@contextmanager
def sqlalchemy_engine(url: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(DRIVER, connect_args=conninfo_to_dict(url))
    try:
        yield engine
    finally:
        engine.dispose()


@asynccontextmanager
async def async_engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(DRIVER, connect_args=conninfo_to_dict(url))
    try:
        yield engine
    finally:
        await engine.dispose()


@contextmanager
def django_connection(url: str) -> Iterator[Any]:
    """`django.db.connection` leads to this database until the end of the block."""
    with on_database(url):
        yield connections["default"]
