"""F119: `cronledger report-tokens`."""

from hashlib import sha256

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import done, read, refused


@pytest.fixture(autouse=True)
def jobs(ask: Ask) -> None:
    """An observed job, one with two scopes, and one that replicas run."""
    ask(
        "INSERT INTO cronledger.jobs (name, handler, scope_kind, scopes) VALUES"
        " ('seen', 'observed', 'global', NULL), ('scoped', 'observed', 'tenant', '{a,b}'),"
        " ('run', 'external', 'global', NULL)"
    )


def test_a_token_is_printed_once_and_stored_as_its_hash(cli: Cli, ask: Ask) -> None:
    made = done(cli, "report-tokens", "create", "seen", "--host", "web1")
    token = made.stdout.removesuffix("\n")
    assert len(token) == 43 and "it is not shown again" in made.stderr
    hashed = sha256(token.encode()).hexdigest()
    ((row,),) = ask("SELECT t::text FROM cronledger.report_tokens t")
    assert hashed in row and token not in row
    listing = cli("report-tokens", "list", "--wide").stdout
    assert "seen" in listing and "web1" in listing
    assert token not in listing and hashed not in listing
    (listed,) = read(cli, "report-tokens", "list", "--job", "seen")
    assert (listed["job_name"], listed["last_used_at"]) == ("seen", None)
    assert listed["created_by"].count("@") == 1
    audit = read(cli, "audit")
    assert [x["object"] for x in audit if x["verb"] == "create_report_token"] == ["seen"]
    assert token not in str(audit) and hashed not in str(audit)


def test_a_token_has_a_scope(cli: Cli) -> None:
    refused(cli("report-tokens", "create", "scoped"), "use --scope ID")
    made = read(cli, "report-tokens", "create", "scoped", "--scope", "b")
    assert made["path"] == f"/report/{made['token']}"
    (row,) = read(cli, "report-tokens", "list")
    assert (row["id"], row["scope_kind"], row["scope_id"]) == (made["id"], "tenant", "b")


def test_a_token_is_revoked_by_its_number(cli: Cli) -> None:
    number = str(read(cli, "report-tokens", "create", "seen")["id"])
    revoke = ("report-tokens", "revoke", number)
    assert cli(*revoke).stdout == f"report token {number}: revoked\n"
    assert cli(*revoke).stdout == f"report token {number}: was revoked already\n"
    assert read(cli, "report-tokens", "list") == []
    (row,) = read(cli, "report-tokens", "list", "--all")
    assert row["revoked_at"] is not None and row["revoked_by"].count("@") == 1


def test_what_cannot_be_is_refused_with_a_remedy(cli: Cli) -> None:
    refused(cli("report-tokens", "create", "absent"), "absent")
    refused(cli("report-tokens", "revoke", "4711"), "`cronledger report-tokens list`")
    refused(cli("report-tokens", "list", "--job", "absent"), "absent")
