"""What the jobs do, and when: no test waits for anything."""

from kiosk.plugins import news, weather

from cronledger.testing import Client, Ledger


async def test_nothing_is_due_at_first(monday: Ledger) -> None:
    async with monday.replica(news.app, weather.app) as replica:
        assert await replica.step() == ()


async def test_headlines_every_hour(monday: Ledger) -> None:
    news.wire.append("calm sea")
    async with monday.replica(news.app) as replica:
        monday.travel(by="30m")
        (ran,) = await replica.step()
        assert (ran.job, ran.status, ran.result) == (
            "headlines", "SUCCESS", {"headlines": ["calm sea"]},
        )  # fmt: skip
        assert ran.plan_time.isoformat() == "2030-06-03T20:00:00+00:00"
        assert await replica.step() == ()


async def test_without_news_it_looks_again_later(monday: Ledger) -> None:
    async with monday.replica(news.app) as replica:
        monday.travel(by="30m")
        (first,) = await replica.step()
        assert (first.status, first.attempt) == ("FAILED", 1)
        monday.travel(by="5m")
        assert await replica.step() == ()
        news.wire.append("a whale")
        monday.travel(by="5m")
        (second,) = await replica.step()
        assert (second.status, second.attempt) == ("SUCCESS", 2)
        assert second.plan_time == first.plan_time


async def test_the_morning_edition_goes_by_the_clocks_of_berlin(monday: Ledger) -> None:
    async with monday.replica(news.app) as replica:
        monday.travel(by="9h01m")  # 04:31 in UTC, 06:31 in Berlin
        await replica.step()
        assert news.printed == ["2030-06-04T04:30:00+00:00"]


async def test_every_town_is_measured(monday: Ledger) -> None:
    async with monday.replica(weather.app) as replica:
        monday.travel(by="10m")
        ran = await replica.step()
    assert sorted(one.result for one in ran) == ["bergen", "lagos"]
    assert [row["status"] for row in monday.executions("measure")] == ["SUCCESS", "SUCCESS"]


async def test_the_host_asks_for_the_headlines_now(monday: Ledger, client: Client) -> None:
    news.wire.append("calm sea")
    async with monday.replica(news.app) as replica:
        assert await replica.step() == ()  # makes the partitions of that Monday
        asked = news.headlines.trigger(conn=client)
        (ran,) = await replica.step()
    assert ran.execution_id == asked
    assert client.execution(asked).result == {"headlines": ["calm sea"]}
