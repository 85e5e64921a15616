"""docs/howto/fastapi.md and flask.md: their Python snippets are run."""

from contextlib import closing

import pytest
from fastapi.testclient import TestClient
from psycopg.errors import UniqueViolation

from cronledger.testing import Ledger
from tests.db.support.whole_replica import Whole
from tests.docs.support.pages import run_snippets
from tests.waiting import until

ORDERS = "CREATE TABLE orders (number int PRIMARY KEY)"


def assert_only_shipped(whole: Whole, execution: int) -> None:
    """The order whose transaction was committed is shipped, and no other was enqueued."""
    assert [row["number"] for row in whole.rows("SELECT number FROM orders")] == [7]
    (row,) = whole.rows("SELECT id FROM cronledger.executions WHERE job_name = 'ship'")
    assert row["id"] == execution
    assert whole.get(execution)["result"] == "order 7"


@pytest.mark.long
def test_the_fastapi_of_the_documentation_is_ready(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    documented = run_snippets("howto/fastapi.md")
    with closing(Ledger(whole.url)) as ledger:
        documented["test_the_application_is_ready"](ledger, monkeypatch)
    monkeypatch.delenv("CRONLEDGER_DATABASE_URL")
    whole.rows("DELETE FROM cronledger.runners")
    with TestClient(documented["configured"](whole.url)):
        assert whole.rows("SELECT slots FROM cronledger.runners") == [{"slots": 2}]


@pytest.mark.long
def test_the_fastapi_of_the_documentation_enqueues_in_the_transaction_of_a_request(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", whole.url)
    whole.rows(ORDERS)
    with TestClient(run_snippets("howto/fastapi.md")["shop"]) as client:
        execution = client.post("/orders/7").json()["execution"]
        with pytest.raises(UniqueViolation):
            client.post("/orders/7")
        until("it has ended", lambda: whole.ended(execution))
    assert_only_shipped(whole, execution)


@pytest.mark.long
def test_the_fastapi_of_the_documentation_serves_the_page(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    documented = run_snippets("howto/fastapi.md")  # without settings
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", whole.url)
    with TestClient(documented["office"], "http://127.0.0.1") as client:
        assert client.get("/ops/cron/jobs").status_code == 403
        assert "expire_carts" in client.get("/ops/cron/jobs", headers={"X-User": "zoe"}).text


@pytest.mark.long
async def test_the_flask_of_the_documentation_has_its_context_and_enqueues(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", whole.url)
    whole.rows(ORDERS)
    documented = run_snippets("howto/flask.md")
    whole.app = documented["app"]
    async with whole.replica():
        row = await whole.run("close_carts")
    assert (row["status"], row["result"]) == ("SUCCESS", "closed at Main Street")
    client = documented["web"].test_client()
    execution = client.post("/orders/7").json["execution"]
    assert client.post("/orders/7").status_code == 500
    async with whole.replica():
        await whole.end(execution)
    assert_only_shipped(whole, execution)
