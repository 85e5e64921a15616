"""`call_command("cronledger", ...)` from a program, such as the runner of a project's tests."""

import os
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection

from cronledger import Client
from cronledger.client import LedgerError
from cronledger.rules.remedies import PROGRAM
from tests.db.support.django_process import on_database


@pytest.mark.long
def test_a_command_writes_to_its_stdout_or_raises_its_error_and_exit_status(
    empty_database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, missing, err = StringIO(), StringIO(), StringIO()
    with on_database(empty_database_url):
        with pytest.raises(CommandError, match=r"run `manage.py cronledger migrate`") as pending:
            call_command("cronledger", "migrate", "--check", stdout=StringIO(), stderr=err)
        assert pending.value.returncode == 4
        with pytest.raises(CommandError, match=r"run `manage.py cronledger migrate`"):
            call_command("cronledger", "jobs", "list", stdout=missing, stderr=err)
        call_command("cronledger", "migrate", "--json", stdout=listed, stderr=err)
        call_command("cronledger", "jobs", "list", stdout=missing, stderr=err)
        with pytest.raises(
            CommandError, match=r"`manage.py cronledger jobs list` lists"
        ) as unknown:
            call_command("cronledger", "jobs", "show", "nothing", stderr=StringIO())
        assert unknown.value.returncode == 2
    assert '"applied"' in listed.getvalue()
    assert "`manage.py cronledger jobs apply FILE` adds jobs" in err.getvalue()
    assert capsys.readouterr() == ("", "")
    assert "CRONLEDGER_DATABASE_URL" not in os.environ


def test_a_client_in_a_project_names_the_command_of_the_project(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PROGRAM, "name", PROGRAM.name)
    with on_database(empty_database_url):
        apps.get_app_config("cronledger").ready()
        client = Client(connection=connection)
        with pytest.raises(LedgerError, match=r"run `manage\.py cronledger migrate`"):
            client.trigger("report")
