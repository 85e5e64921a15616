"""Connections and sessions of other libraries on the ledger of a test."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import django
import sqlalchemy
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

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
def django_connection(url: str, **more: Any) -> Iterator[Any]:
    """`django.db.connection` leads to this database until the end of the block."""
    if not settings.configured:
        settings.configure(USE_TZ=True, TIME_ZONE="America/New_York", LOGGING_CONFIG=None)
        django.setup()
    options = conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": options.pop("dbname"),
        "OPTIONS": options, **more,
    }  # fmt: skip
    handler: Any = connections
    handler.settings = handler.configure_settings({"default": database})
    try:
        yield handler["default"]
    finally:
        handler["default"].close()
        del handler["default"]
