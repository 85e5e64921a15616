"""Django's connections around handlers, and the connection string of DATABASES."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections

from cronledger.contrib.django.connections import CLOSE_OLD_CONNECTIONS
from cronledger.contrib.django.database import dsn
from cronledger.declaring.app import App
from cronledger.rules.problems import ConfigurationError
from tests.db.support.django_process import on_database
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually

LIVE = "SELECT pid FROM pg_stat_activity WHERE pid = ANY (%s)"


@pytest.fixture(autouse=True)
def options(database_url: str) -> Iterator[dict[str, Any]]:
    """The settings of the default database, which is that of the test, for the test to change."""
    with on_database(database_url) as found:
        yield found


@pytest.fixture
def whole(whole: Whole) -> Whole:
    whole.app = App("shop", middleware=[CLOSE_OLD_CONNECTIONS])
    return whole


def backend() -> int:
    """The server process of Django's connection in this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        found: int = cursor.fetchone()[0]
    return found


@pytest.mark.long
async def test_a_sync_handler_leaves_no_connection_that_is_too_old(whole: Whole) -> None:
    def first() -> list[int]:
        return [backend(), backend()]

    job = whole.job(first)
    async with whole.replica(slots=1):
        one, same = (await whole.run(job))["result"]
        assert one == same
        await eventually("its session has ended", lambda: whole.rows(LIVE, [one]) == [])


@pytest.mark.long
async def test_async_handlers_have_connections_of_their_own(
    whole: Whole, options: dict[str, Any]
) -> None:
    options["CONN_MAX_AGE"] = None
    together = asyncio.Barrier(2)

    async def first() -> list[int]:
        one = await sync_to_async(backend)()
        await together.wait()
        return [one, await sync_to_async(backend)()]

    job = whole.job(first, overlap="allow")
    async with whole.replica():
        ends = [await whole.end(x) for x in [await whole.trigger(job) for _ in range(2)]]
    (one, same), (other, same_other) = (end["result"] for end in ends)
    assert one == same != other == same_other
    await eventually("their sessions have ended", lambda: whole.rows(LIVE, [one, other]) == [])


def test_the_connection_string_is_that_of_the_settings(options: dict[str, Any]) -> None:
    options["CONN_MAX_AGE"] = None
    options["OPTIONS"] |= {"options": "-c work_mem=5MB", "server_side_binding": True}
    with psycopg.connect(dsn("default")) as plain:
        row = plain.execute("SELECT current_database(), current_setting('work_mem')").fetchone()
    assert row == (options["NAME"], "5MB")


def test_settings_that_no_connection_string_has_are_refused(options: dict[str, Any]) -> None:
    for changed, named in (
        ({"OPTIONS": {"assume_role": "boss"}},
         "DATABASES['default'].OPTIONS.assume_role = \"boss\""),
        ({"NAME": "", "OPTIONS": {}}, "DATABASES['default']: settings.DATABASES is improperly"),
    ):  # fmt: skip
        options.update(changed)
        with pytest.raises(ConfigurationError) as refused:
            dsn("default")
        assert named in str(refused.value)


def test_psycopg2_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Psycopg2:
        __name__ = "psycopg2"

    monkeypatch.setattr(connections["default"], "Database", Psycopg2())
    with pytest.raises(ConfigurationError, match="uses psycopg2, not psycopg 3; uninstall"):
        dsn("default")
