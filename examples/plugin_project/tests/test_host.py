"""Plugins come and go while the program runs."""

from kiosk.host import Host
from kiosk.plugins import weather

from cronledger.testing import Ledger


async def test_a_plugin_that_is_off_measures_nothing_and_makes_nothing_up(monday: Ledger) -> None:
    async with monday.replica() as replica:
        host = Host(replica)
        await host.switch_on("weather")
        monday.travel(by="10m")
        assert len(await replica.step()) == 2
        await host.switch_off("weather")
        monday.travel(by="1h")
        assert await replica.step() == ()
        await host.switch_on("weather")
        assert await replica.step() == ()
        monday.travel(by="10m")
        assert len(await replica.step()) == 2
    assert len(weather.measured) == 4
    assert {(row["reason"], row["count"]) for row in monday.skips()} == {("retired", 6)}


async def test_other_plugins_go_on(monday: Ledger) -> None:
    async with monday.replica() as replica:
        host = Host(replica)
        await host.switch_on("weather")
        await host.switch_on("news")
        await host.switch_off("news")
        monday.travel(by="30m")
        assert {ran.job for ran in await replica.step()} == {"measure"}
