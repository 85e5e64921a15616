"""What the jobs do, and when: no test waits for anything."""

import pytest
from invoicing.jobs import Invoice, Mailer, MailServerError, app, close_day, send

from cronledger.testing import Client, Ledger, assert_fires

INVOICE = Invoice(number=7, customer="acme", cents=500)


def test_a_day_is_closed_once_also_when_the_clocks_change() -> None:
    assert_fires(close_day, "2027-03-28", at=["03:00"])  # 02:30 does not exist
    assert_fires(close_day, "2027-10-31", at=["02:30+02:00"])  # 02:30 occurs twice
    assert_fires(close_day, year=2027, times=365)


async def test_the_day_is_in_the_books(books: Ledger) -> None:
    async with books.replica(app) as replica:
        books.travel(by="5h01m")  # 03:01 in Berlin
        (ran,) = await replica.step()
    assert (ran.status, ran.result) == ("SUCCESS", "2027-03-28")
    assert books.rows("SELECT day::text FROM public.closed_days") == [{"day": "2027-03-28"}]


async def test_a_mail_is_sent_once_the_server_is_back(
    books: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(mailer: Mailer, invoice: Invoice, key: str) -> None:
        raise MailServerError("connection refused")

    async with books.replica(app) as replica:
        made = send.enqueue(INVOICE, conn=client)
        with monkeypatch.context() as patched:
            patched.setattr(Mailer, "send", down)
            (first,) = await replica.step()
        books.travel(by="1m")
        (second,) = await replica.step()
    assert (first.status, first.error_code) == ("FAILED", "handler_error")
    assert (second.execution_id, second.attempt, second.result) == (made, 2, "sent 7")
