"""Which role may run which command: real roles, real PostgreSQL, every command of the program."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import make_conninfo

from cronledger.cli import main
from tests.cli.support.clocks import set_ten_past
from tests.cli.support.commands import commands
from tests.cli.support.daemon import Run
from tests.cli.support.results import read, refused
from tests.database import Databases
from tests.db.support import rows
from tests.marks import first_fast

CLI_DOC = Path(__file__).parents[2] / "docs" / "cli.md"
PASSWORD = "not-a-secret"
GROUPS = {name: f"cronledger_{name}" for name in ("viewer", "operator", "runner")}
NOBODY = "none"
ROLES = (NOBODY, *GROUPS)

JOBS = """
[channels.ops]
kind = "command"
command = ["true"]

[calendars.de]
weekend = ["Saturday", "Sunday"]

[jobs.hourly]
schedule = "0 * * * *"
command = ["true"]
payload = { customer = "acme" }

[jobs.fetch]
schedule = "30 3 * * *"
http = { url = "https://user:hunter2@example.com/x", headers = { Authorization = "hunter2" } }
"""
CHANGED = JOBS.replace('"0 * * * *"', '"15 * * * *"')


ARGUMENTS = {
    **dict.fromkeys((
        "migrate", "schema", "forecast", "jobs list", "planned-skips", "pauses list",
        "executions list", "queues list", "retention show", "calendars list", "sources list",
        "alerts", "channels list", "channels deliveries", "audit", "deadlines", "compliance",
        "verify", "refuse-database", "runners", "hosts list", "report-tokens list",
        "metrics",
    ), ""),
    "run": "--no-migrate jobs.toml --source jobs", "check": "jobs.toml",
    "import apscheduler": "peers:scheduler", "import celery": "peers:celery",
    "import crontab": "crontab", "import kubernetes": "empty.yaml", "import systemd": ".",
    "import pg_cron": "--from host=/nowhere",
    "import github-actions": "empty.yaml --repository acme/shop",
    "next": "hourly", "jobs show": "fetch", "jobs apply": "changed.toml --source jobs",
    "jobs diff": "changed.toml --source jobs", "jobs pause": "hourly --until 1h",
    "jobs resume": "hourly", "jobs remove": "hourly", "jobs redact": "hourly target env SECRET",
    "skip": "hourly 2090-01-01T00:00Z --reason night",
    "pauses plan": "--job hourly --from 1h --reason night", "pauses change": "1 --from 2h",
    "pauses end": "1", "trigger": "fetch", "enqueue": "hourly --key k",
    "backfill": "hourly --from 3h --to 1h", "progress": "1", "adopt": "seen --at 2090-01-01",
    "observe": "--deliver", "executions show": "2", "executions output": "2",
    "executions retry": "2", "executions cancel": "3", "executions redact": "2",
    "queues pause": "default", "queues resume": "default", "queues limit": "default 3",
    "retention set": "80d", "calendars show": "de", "calendars diff": "de 1 1",
    "sources rename": "jobs moved", "channels pause": "ops", "channels resume": "ops",
    "channels retry": "4711", "channels test": "ops --timeout 1ms", "why": "hourly 00:00",
    "accept-database": "--catch-up", "hosts retire": "gone", "report-tokens create": "seen",
    "report-tokens revoke": "1",
}  # fmt: skip
"""The arguments of each command."""
# A database that is away, a lease that is lost, a delivery that does not exist or does not end.
CODES = {"import pg_cron": 3, "progress": 1, "channels retry": 2, "channels test": 1}
OBSERVED = "INSERT INTO cronledger.jobs (name, handler) VALUES ('seen', 'observed')"
BEFORE = {
    "adopt": "INSERT INTO cronledger.jobs (name, handler, schedule, observed)"
    " VALUES ('seen', 'external', '0 0 * * *', true)",
    "accept-database": "UPDATE cronledger.identity SET database_oid = 0",
    "hosts retire": "INSERT INTO cronledger.hosts (name, present_through)"
    " VALUES ('gone', '2020-01-01')",
    "report-tokens create": OBSERVED,
    "report-tokens revoke": f"{OBSERVED};"
    " SELECT cronledger.create_report_token(repeat('a', 64), 'seen')",
}
# Tests of their own. dev has a database of its own, and the page states on itself what is denied.
ELSEWHERE = {"run", "doctor", "dev", "web"}


def documented_rights() -> dict[str, frozenset[str]]:
    """Return the roles that may run each command, as docs/cli.md states them."""
    section = CLI_DOC.read_text("utf-8").partition("\n## Rights\n")[2].partition("\n## ")[0]
    (sentence,) = re.findall(r"^(`[^.]*`) need no database\.", section, re.MULTILINE)
    found = dict.fromkeys(re.findall(r"`([a-z_ -]+)`", sentence), frozenset(ROLES))
    for cells in re.findall(r"^\| (`.*?) \| (.*?) ?\| (.*?) ?\| (.*?) ?\|$", section, re.MULTILINE):
        allowed = {role for role, cell in zip(GROUPS, cells[1:], strict=True) if cell == "yes"}
        for name in re.findall(r"`([a-z -]+?)(?: JOB| --check)?`", cells[0]):
            found[name] = frozenset(allowed)
    return found


RIGHTS = documented_rights()


def test_the_rights_and_the_arguments_of_every_command_are_known() -> None:
    """Decide for a new command which roles may run it: in docs/cli.md, cli/denied.py and its SQL.

    The documented rights are tested below.
    """
    assert commands().keys() == RIGHTS.keys() == ARGUMENTS.keys() | ELSEWHERE


@dataclass(frozen=True, slots=True)
class Roles:
    """A login role per group and one without any; `ledger` is a prepared database to clone."""

    databases: Databases
    ledger: str
    suffix: str

    def name(self, role: str) -> str:
        return f"cronledger_test_{role}_{self.suffix}"

    def url(self, database: str, role: str) -> str:
        url = self.databases.url(database)
        return make_conninfo(url, user=self.name(role), password=PASSWORD)

    def assert_denied(self, error: str, role: str, command: str, remedy: str) -> None:
        """Fail unless the last line names role and command, and the remedy: a group or a text."""
        line, name = error.splitlines()[-1], self.name(role)
        assert line.startswith(f"Error: role {name} may not run `cronledger {command}`: ")
        grant = f"run `GRANT {remedy} TO {name}`"
        assert line.endswith(grant if remedy in GROUPS.values() else remedy)


@pytest.fixture(scope="module")
def roles(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    ledger = databases.create(databases.template())
    made = Roles(databases, ledger, ledger.rpartition("test_")[2])
    with rows.connected(databases.url(ledger)) as db:
        set_ten_past(db)  # verify fails if something is due that nobody has planned
        db.execute(
            "SELECT cronledger.plan_pause("
            "'night', cronledger.db_now() + interval '1 day', queue => 'other')"
        )
    file = tmp_path_factory.mktemp("roles") / "jobs.toml"
    file.write_text(JOBS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CRONLEDGER_DATABASE_URL", databases.url(ledger))
        applied = CliRunner().invoke(main, ["jobs", "apply", str(file), "--source", "jobs"])
        assert applied.exit_code == 0, applied.output
    with rows.connected(databases.url(ledger)) as db:
        for minutes, status in ((3, "SUCCESS"), (2, "FAILED"), (1, "RUNNING")):
            rows.execution(
                db, status, "hourly", trigger="manual", payload='{"customer": "acme"}',
                plan_time=rows.now(db) - timedelta(minutes=minutes), output="said",
                stale_after=rows.now(db) + timedelta(days=1),
            )  # fmt: skip
        for role in ROLES:
            group = f" IN ROLE {GROUPS[role]}" if role in GROUPS else ""
            create = f"CREATE ROLE {made.name(role)} LOGIN PASSWORD '{PASSWORD}'{group}"
            db.execute(create.encode())
    yield made
    databases.drop(ledger)
    with rows.connected(databases.url("postgres")) as db:
        for role in ROLES:
            db.execute(f"DROP ROLE {made.name(role)}".encode())


@pytest.fixture
def call(roles: Roles, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Run a command as a role, on a clone of the ledger that no earlier call has changed."""
    monkeypatch.setenv("CRONLEDGER_SPOOL_DIR", str(Path("spool").absolute()))
    monkeypatch.setenv("CRONLEDGER_EXECUTION_ID", "3")
    monkeypatch.setenv("CRONLEDGER_LEASE_TOKEN", str(UUID(int=0)))
    Path("jobs.toml").write_text(JOBS)
    Path("changed.toml").write_text(CHANGED)
    Path("crontab").write_text("0 * * * * true\n")
    Path("peers.py").write_text(
        "from apscheduler.schedulers.background import BackgroundScheduler\n"
        "from celery import Celery\n"
        "celery = Celery('shop', set_as_current=False)\n"
        "celery.conf.beat_schedule = {'tick': {'task': 'tick', 'schedule': 60}}\n"
        "scheduler = BackgroundScheduler(timezone='UTC')\n"
        "scheduler.add_job('os:getpid', 'cron', hour=6)\n"
    )
    Path("empty.yaml").touch()
    with ExitStack() as stack:
        unchanged: list[str] = []

        def clone() -> str:
            database = roles.databases.create(roles.ledger)
            stack.callback(roles.databases.drop, database)
            return database

        def invoke(role: str, *arguments: str, before: str = "", changes: bool = True) -> Result:
            if not changes and not unchanged:
                unchanged.append(clone())
            database = clone() if changes else unchanged[0]
            with psycopg.connect(roles.databases.url(database), autocommit=True) as c:
                c.execute(before.encode())
            monkeypatch.setenv("CRONLEDGER_DATABASE_URL", roles.url(database, role))
            return CliRunner().invoke(main, arguments)

        yield invoke


@pytest.mark.parametrize("role", first_fast(ROLES))
@pytest.mark.long
def test_a_role_may_run_a_command_or_is_told_what_it_needs(
    call: Callable[..., Result], roles: Roles, role: str
) -> None:
    for name, allowed in RIGHTS.items():
        if name in ELSEWHERE:
            continue
        before = BEFORE.get(name, "")
        changes = role in allowed and "viewer" not in allowed
        arguments = f"{name} {ARGUMENTS[name]}".split()
        said = call(role, *arguments, before=before, changes=changes or before != "")
        if role in allowed:
            assert said.exit_code == CODES.get(name, 0), (name, said.output)
            if name != "audit":  # it lists what the commands before it were refused
                assert "permission denied" not in said.output, name
            continue
        assert (said.exit_code, said.stdout) == (2, ""), (name, said.output)
        group = next(GROUPS[one] for one in GROUPS if one in allowed)
        owner = "as the owner of the schema"
        roles.assert_denied(said.stderr, role, name, owner if name == "migrate" else group)


@pytest.mark.parametrize("role", first_fast(ROLES))
def test_doctor_checks_what_the_role_may_read(call: Callable[..., Result], role: str) -> None:
    said = call(role, "doctor", "--verbose")
    assert said.exit_code == 1  # it has no live replica
    if role in RIGHTS["doctor"]:
        assert "NOT CHECKED" not in said.stdout
    else:
        assert "NOT CHECKED schema: permission denied for schema cronledger" in said.stdout
        assert " 0 not checked" not in said.stderr
        short = call(role, "doctor").stdout  # one line for all checks
        assert short.count("GRANT cronledger_viewer TO") == short.count("NOT CHECKED schema, ") == 1


@pytest.mark.parametrize("role", first_fast(ROLES))
@pytest.mark.usefixtures("call")
@pytest.mark.long
def test_run_is_for_runners(roles: Roles, role: str, surroundings: Path) -> None:
    database = roles.databases.create(roles.ledger)
    environment = os.environ | {"CRONLEDGER_DATABASE_URL": roles.url(database, role)}
    run = Run(surroundings, environment, "run", *ARGUMENTS["run"].split())
    if role in RIGHTS["run"]:
        run.until_event("runner_started")
        run.signal(signal.SIGTERM)
        assert run.end() == 0, run.err
    else:
        assert (run.end(), run.out) == (2, ""), run.err
        roles.assert_denied(run.err, role, "run", GROUPS["runner"])
    roles.databases.drop(database)


def test_a_viewer_sees_neither_payload_nor_target(call: Callable[..., Result]) -> None:
    for arguments in (["jobs", "show", "hourly"], ["executions", "show", "2"]):
        withheld = call("viewer", *arguments, "--json", changes=False)
        assert not {"payload", "target"} & json.loads(withheld.stdout).keys()
        assert "acme" not in withheld.output
        note = "payloads and targets are shown only to members of cronledger_operator"
        assert note in withheld.stderr
        shown = call("operator", *arguments, "--json", changes=False)
        assert json.loads(shown.stdout)["payload"] == {"customer": "acme"}
        assert shown.stderr == ""


@pytest.mark.long
def test_a_run_of_verify_is_recorded_for_roles_that_may_write(
    call: Callable[..., Result], roles: Roles
) -> None:
    for count, role in enumerate(GROUPS):  # the viewer is the first of them
        said = call(role, "verify", changes=False)
        assert said.exit_code == 0, said.output
        with psycopg.connect(os.environ["CRONLEDGER_DATABASE_URL"]) as c:
            recorded = c.execute("SELECT outcome FROM cronledger.verifications").fetchall()
        note = f"this run is not recorded; {roles.name(role)} is not a member of"
        assert said.stderr.count(f"{note} cronledger_operator") == (1 if role == "viewer" else 0)
        assert recorded == [("finished",)] * count


def test_a_group_without_its_rights_names_the_migration(call: Callable[..., Result]) -> None:
    revoke = "REVOKE SELECT ON cronledger.job_overview FROM cronledger_viewer"
    remedy = "cronledger_viewer itself does not have this right; run `cronledger migrate`"
    refused(call("viewer", "jobs", "list", before=revoke), remedy)


def test_a_member_that_does_not_inherit_is_told_so(
    call: Callable[..., Result], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = roles.name("none")
    alter = f"ALTER ROLE {name} NOINHERIT; GRANT cronledger_viewer TO {name}"
    try:
        said = call("none", "jobs", "list", before=alter)
        assert said.exit_code == 2
        option = "options=-crole=cronledger_viewer"
        assert said.stderr.strip().endswith(f"add {option} to the connection string")
        url = make_conninfo(os.environ["CRONLEDGER_DATABASE_URL"], options=option[8:])
        monkeypatch.setenv("CRONLEDGER_DATABASE_URL", url)
        assert CliRunner().invoke(main, ["jobs", "list"]).exit_code == 0
    finally:
        with psycopg.connect(roles.databases.url("postgres"), autocommit=True) as c:
            c.execute(f"REVOKE cronledger_viewer FROM {name}; ALTER ROLE {name} INHERIT".encode())


def test_a_viewer_may_ask_what_a_backfill_would_do(call: Callable[..., Result]) -> None:
    backfill = ("backfill", *ARGUMENTS["backfill"].split())
    planned = read(call, "viewer", *backfill, "--dry-run")
    assert {row["action"] for row in planned} == {"make"}


@pytest.mark.long
def test_operators_accept_violations(call: Callable[..., Result], roles: Roles) -> None:
    early = "UPDATE cronledger.executions SET started_at = due_at - interval '1 s' WHERE id = 2"
    for role in ("viewer", "runner", "operator"):
        said = call(role, "verify", "--accept", "INC-7", before=early, changes=False)
        if role == "operator":
            assert said.exit_code == 0, said.output
            assert re.match(r"0 violations \(\d more are accepted\)", said.stderr)
            continue
        assert said.exit_code == 2, said.output
        roles.assert_denied(said.stderr, role, "verify --accept", GROUPS["operator"])
