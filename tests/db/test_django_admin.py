"""Django's admin over the views of the ledger."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import resolve

from cronledger.sources.apply import apply
from tests.db.support.django_process import on_database
from tests.db.support.rows import connected, copies, execution
from tests.db.support.whole_replica import Whole

Get = Callable[..., str]
LISTS = ("job", "jobstate", "execution", "skip", "overdue", "runner")
STATEMENTS: list[str] = []
"""What the last page sent to the database."""


def request(path: str, *, method: str = "get") -> Any:
    """The response to a superuser, who may do everything that the admin allows."""
    from django.contrib.auth.models import User
    from django.contrib.messages.storage.cookie import CookieStorage

    asked = getattr(RequestFactory(), method)(f"/admin/cronledger/{path}")
    asked.user = User(username="root", is_staff=True, is_superuser=True)
    asked._messages = CookieStorage(asked)
    asked._dont_enforce_csrf_checks = True
    found = resolve(asked.path)
    return found.func(asked, *found.args, **found.kwargs)


@pytest.fixture
def get(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Get]:
    """The text of a page of the admin, for async tests as well."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

    def page(path: str) -> str:
        with CaptureQueriesContext(connection) as sent:
            response = request(path)
            assert response.status_code == 200
            text: str = response.render().content.decode()
        connections.close_all()  # an async test has connections that the fixture does not see
        STATEMENTS[:] = [query["sql"] for query in sent.captured_queries]
        return text

    with on_database(database_url):
        call_command("migrate", "contenttypes", verbosity=0)
        yield page


def rows(page: str) -> list[str]:
    """The rows of a list, as text."""
    body = page[page.index("<tbody>") :] if "<tbody>" in page else ""
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in body.split("<tr>")[1:]]


@pytest.mark.long
async def test_the_lists_show_the_ledger_and_the_pages_its_rows(whole: Whole, get: Get) -> None:
    def greet() -> dict[str, str]:
        return {"hello": "admin"}

    def fails() -> None:
        raise LookupError("nobody is here")

    jobs = [whole.job(x, description="For people") for x in (greet, fails)]
    async with whole.replica(runner_id="the-runner"):
        good, bad = [await whole.run(job) for job in jobs]
        (runner,) = rows(get("runner/"))
    assert runner.startswith("the-runner") and "alive default 10" in runner
    assert [row.split()[0] for row in rows(get("job/"))] == ["fails", "greet"]
    assert [row.split()[:3] for row in rows(get("jobstate/?state=unscheduled"))] == [
        ["fails", "global", "unscheduled"], ["greet", "global", "unscheduled"],
    ]  # fmt: skip
    assert [row.split()[:2] for row in rows(get("execution/"))] == [
        [str(bad["id"]), "fails"], [str(good["id"]), "greet"],
    ]  # fmt: skip
    assert len(rows(get("execution/?status__exact=FAILED&trigger__exact=manual"))) == 1
    assert len(rows(get("execution/?plan_time__gte=2200-01-01T00:00:00Z"))) == 0
    assert [row.split()[0] for row in rows(get(f"execution/?q={good['id']}"))] == [str(good["id"])]
    assert len(rows(get("execution/?q=fails"))) == 1
    assert len(rows(get("execution/?q=fail"))) == 0
    page = get(f"execution/{good['id']}/change/")
    assert "hello" in page and "_save" not in page
    assert "LookupError: nobody is here" in get(f"execution/{bad['id']}/change/")
    assert "For people" in get("job/greet/change/")


@pytest.mark.long
def test_nothing_is_counted_and_no_token_is_shown(whole: Whole, get: Get) -> None:
    whole.declare("many", "command", {"command": ["true"]})
    apply(whole.url, whole.jobs, source="test")
    whole.rows("SELECT cronledger.trigger('many')")
    with connected(whole.url) as db:
        copies(db, execution(db, "RUNNING", "many"), 119)
    for name in LISTS:
        get(f"{name}/")
        assert not [x for x in STATEMENTS if "COUNT(" in x.upper()]
        assert [x for x in STATEMENTS if "LIMIT 51" in x], STATEMENTS
    first, last = get("execution/"), get("execution/?p=3")
    assert (len(rows(first)), len(rows(last))) == (50, 21)
    assert "?p=2" in first and "?p=4" not in last
    assert '"output"' not in STATEMENTS[0]
    assert request("execution/?p=4").url.endswith("?e=1")
    row = whole.rows("SELECT * FROM cronledger.executions WHERE lease_token IS NOT NULL LIMIT 1")[0]
    for page in (first, get(f"execution/{row['id']}/change/")):
        assert str(row["lease_token"]) not in page


def test_nobody_may_add_delete_or_change_anything(whole: Whole, get: Get) -> None:
    from django.core.exceptions import PermissionDenied

    whole.declare("many", "command", {"command": ["true"]})
    apply(whole.url, whole.jobs, source="test")
    execution = whole.one("SELECT cronledger.trigger('many')")
    changes = ["job/many/change/", f"execution/{execution}/change/"]
    for path in changes:
        assert "many" in get(path)
    for path in [f"{name}/{end}" for name in LISTS for end in ("add/", "1/delete/")] + changes:
        with pytest.raises(PermissionDenied):
            request(path, method="post")
    for name in LISTS:
        missing = f"{name}/{execution + 1}/change/"
        assert request(missing).status_code == 302
