"""What requests enqueue, and the page. The replica of the application runs by itself."""

from fastapi.testclient import TestClient
from invoicing.web import api

from cronledger.testing import Client, Ledger


def test_the_mail_of_a_request_is_sent(books: Ledger, client: Client) -> None:
    with TestClient(api) as web:
        made = web.post("/invoices", json={"number": 1, "customer": "acme", "cents": 500})
        ended = client.wait(made.json()["execution"], timeout=60)
    assert (made.status_code, ended.result) == (202, "sent 1")
    assert books.rows("SELECT sent_at IS NOT NULL AS sent FROM public.invoices") == [{"sent": True}]


def test_a_rollback_leaves_no_execution(books: Ledger) -> None:
    with TestClient(api) as web:
        refused = web.post("/invoices", json={"number": 2, "customer": "acme", "cents": 200_000})
    assert refused.status_code == 409
    assert books.rows("SELECT FROM public.invoices") == []
    assert books.executions("send") == []


def test_the_page_shows_the_ledger_of_the_test_to_who_has_signed_in(books: Ledger) -> None:
    with TestClient(api) as web:
        assert web.get("/ops/cron/jobs").status_code == 403
        assert "close_day" in web.get("/ops/cron/jobs", headers={"X-User": "zoe"}).text
