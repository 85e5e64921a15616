"""docs/howto/fastapi.md and flask.md: their Python snippets are run."""

from contextlib import closing

import pytest
from fastapi.testclient import TestClient

from cronledger.testing import Ledger
from tests.db.support.whole_replica import Whole
from tests.db.test_python_howtos import run_snippets


def test_f50_the_fastapi_of_the_documentation_serves_and_runs_jobs(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    documented = run_snippets("fastapi.md")
    with closing(Ledger(whole.url)) as ledger:
        documented["test_the_application_is_ready"](ledger, monkeypatch)  # sets the variable
    with TestClient(documented["both"]) as client:
        assert client.get("/client").json() == "open"
    whole.rows("DELETE FROM cronledger.runners")
    monkeypatch.delenv("CRONLEDGER_DATABASE_URL")
    with TestClient(documented["configured"](whole.url)):
        assert whole.rows("SELECT slots FROM cronledger.runners") == [{"slots": 2}]


async def test_the_flask_of_the_documentation_has_its_context(whole: Whole) -> None:
    documented = run_snippets("flask.md")
    whole.app = documented["app"]
    async with whole.replica():
        row = await whole.run("close_carts")
    assert (row["status"], row["result"]) == ("SUCCESS", "closed at Main Street")
