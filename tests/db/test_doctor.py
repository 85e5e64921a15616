"""Each finding of the doctor: it appears with what is wrong, and goes when that is put right."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from cronledger.audit.recording import Recording
from cronledger.audit.verify import Report
from cronledger.explain import doctor_ledger, doctor_server, findings
from cronledger.explain.doctor import DoctorContext, Finding, examine
from cronledger.ledger.migrate import REPEATED, migrate
from cronledger.rules import cron
from cronledger.settings import Settings
from tests.db.support.engine import DAY, Ledger
from tests.db.support.pgbouncer import needs_pgbouncer, pgbouncer
from tests.db.support.rows import execution
from tests.waiting import until

CHECKS = (*doctor_server.CHECKS, doctor_ledger.schema, *doctor_ledger.CHECKS)


@pytest.fixture(autouse=True)
def arrives_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notification may take longer than a healthy server needs: this machine may be busy."""
    monkeypatch.setattr(doctor_server, "ARRIVES_SECONDS", 60.0)


@contextmanager
def patient(url: str, role: str = "none", **settings: Any) -> Iterator[DoctorContext]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET ROLE {role}".encode())
        yield DoctorContext(connection, Settings(**settings), url, cron.FINGERPRINT)


def found(url: str, check: str, **settings: Any) -> list[Finding]:
    """Return the findings of one check, which is a part of `schema` if it is `objects`."""
    (made,) = [x for x in CHECKS if x.__name__ == ("schema" if check == "objects" else check)]
    with patient(url, **settings) as seen:
        return [finding for finding in made(seen) if finding.check == check]


def one(url: str, check: str, **settings: Any) -> Finding:
    """The only finding of a check; what is not ok has a remedy."""
    (finding,) = found(url, check, **settings)
    assert (finding.remedy is None) is (finding.severity == "ok")
    return finding


def told(ledger: Ledger, check: str) -> str:
    """The only finding of a check with its severity and remedy, as one text."""
    finding = one(ledger.url, check)
    return f"{finding.severity}: {finding.found} -> {finding.remedy}"


def this_database(ledger: Ledger, what: str) -> None:
    name = ledger.one("SELECT current_database()")
    ledger.values(f'ALTER DATABASE "{name}" {what}')


def return_to_present(ledger: Ledger) -> None:
    """The clock of the ledger shows the time of the server again."""
    ledger.values("UPDATE time_travel SET ahead = '0'")


def verified(
    ledger: Ledger, job: str | None = None, *, first: int | None = None, through: int = 0,
    **kinds: int,
) -> None:  # fmt: skip
    """Record a run that found these violations: of plan_times `first` to `through` days ago."""
    now = ledger.now()
    from_ = None if first is None else now - first * DAY
    with psycopg.connect(ledger.url, autocommit=True) as c:
        run = Recording.begin(c, "cronledger", job=job, from_=from_, to=None, requested_by="me")
        report = Report(lambda _: iter(()))
        report.kinds.update(kinds)
        run.finish(report)
    if first is not None or through:
        ledger.values(
            "UPDATE verification_runs SET finished_at = %s, checked_through = %s,"
            " checked_after = %s WHERE id = (SELECT max(id) FROM verification_runs)",
            now - through * DAY, now - through * DAY, from_ or now - 90 * DAY,
        )  # fmt: skip


def test_connection() -> None:
    assert doctor_server.latency(1.0, "15.4") == Finding(
        "connection", "ok", "PostgreSQL 15.4, a round trip takes 1.0 ms"
    )
    slow = doctor_server.latency(80.0, "15.4")
    assert (slow.severity, slow.found[-7:]) == ("warning", "80.0 ms")


def test_encryption() -> None:
    for tls, host, address, severity in (
        (True, "db.example.com", "192.0.2.7", "ok"),
        (False, "db.example.com", "192.0.2.7", "warning"),
        (False, "192.0.2.7", "", "warning"),
        (False, "db.local", "::1", "ok"),
        (False, "localhost", "", "ok"),
        (False, "/var/run/postgresql", "", "ok"),
    ):
        assert doctor_server.encrypted(tls, host, address).severity == severity


def test_autovacuum(ledger: Ledger) -> None:
    this_database(ledger, "SET track_counts = off")
    assert one(ledger.url, "autovacuum").found == "track_counts = off"
    this_database(ledger, "RESET track_counts")
    assert one(ledger.url, "autovacuum").severity == "ok"
    with patient(ledger.url) as seen:
        server = {**seen.row("examine_server"), "autovacuum": False}
    assert doctor_server.vacuuming(server).severity == "problem"


def test_connections(ledger: Ledger) -> None:
    this_database(ledger, "CONNECTION LIMIT 9")
    assert one(ledger.url, "connections").severity == "problem"
    this_database(ledger, "CONNECTION LIMIT 16")
    assert one(ledger.url, "connections").severity == "warning"
    this_database(ledger, "CONNECTION LIMIT -1")
    assert one(ledger.url, "connections").severity == "ok"


@needs_pgbouncer
def test_pooler(ledger: Ledger, tmp_path: Path) -> None:
    assert one(ledger.url, "pooler").found == "none"
    assert one(ledger.url, "pooler", pgbouncer=True).severity == "warning"
    with pgbouncer(ledger.url, tmp_path) as url:
        unknown = one(url, "pooler")
        assert unknown.severity == "problem"
        assert "CRONLEDGER_PGBOUNCER=true" in str(unknown.remedy)
        assert one(url, "pooler", pgbouncer=True).severity == "ok"
        deaf = one(url, "listening", pgbouncer=True)
        assert (deaf.severity, "CRONLEDGER_LISTEN_URL" in str(deaf.remedy)) == ("warning", True)
        direct = one(url, "listening", pgbouncer=True, listen_url=SecretStr(ledger.url))
        assert direct.severity == "ok"
        pooled = one(url, "listening", pgbouncer=True, listen_url=SecretStr(url))
        assert "CRONLEDGER_LISTEN_URL leads to a pooler" in pooled.found


def test_listening(
    ledger: Ledger, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = one(ledger.url, "listening")
    assert (own.severity, own.found) == ("ok", "notifications arrive")
    assert one(ledger.url, "listening", listen_url=SecretStr(ledger.url)).severity == "ok"
    nowhere = make_conninfo(ledger.url, host="/nowhere")
    gone = one(ledger.url, "listening", listen_url=SecretStr(nowhere))
    assert (gone.severity, gone.found.split(":")[0]) == (
        "problem",
        "CRONLEDGER_LISTEN_URL cannot LISTEN",
    )
    monkeypatch.setattr(doctor_server, "ARRIVES_SECONDS", 0.2)
    other = one(ledger.url, "listening", listen_url=SecretStr(empty_database_url))
    assert (other.severity, "leads to a different database" in other.found) == ("problem", True)


def test_schema(ledger: Ledger, empty_database_url: str) -> None:
    ledger.values("UPDATE schema_migrations SET checksum = 'other' WHERE phase = 'repeated'")
    old = one(ledger.url, "schema")
    assert (old.severity, old.remedy) == ("problem", "run `cronledger migrate`")
    assert "functions and views" in old.found
    with patient(empty_database_url) as seen:
        problems = [x.check for x in examine(seen) if x.severity == "problem"]
        assert problems == ["schema"]
    ledger.values("UPDATE schema_migrations SET name = '0009_post_x' WHERE phase = 'repeated'")
    newer = one(ledger.url, "schema")
    assert "0009_post_x, which this cronledger" in newer.found


@pytest.mark.long
def test_roles(ledger: Ledger) -> None:
    name = f"cronledger_test_{ledger.one('SELECT pg_backend_pid()')}_{token_hex(4)}"
    ledger.values(f"CREATE ROLE {name} LOGIN IN ROLE cronledger_viewer")
    try:
        with patient(ledger.url, name) as seen:
            poor = {x.check: x for x in examine(seen)}
        assert (poor["roles"].severity, poor["roles"].remedy) == ("ok", None)
        assert poor["roles"].found == f"{name} may read, but not run replicas"
        assert not [x for x in poor.values() if x.severity == "unchecked"]
        ledger.values(f"REVOKE cronledger_viewer FROM {name}")
        ledger.values(f"GRANT USAGE ON SCHEMA cronledger, cronledger_internal TO {name}")
        ledger.values(f"GRANT EXECUTE ON FUNCTION cronledger_internal.missing_grants TO {name}")
        with patient(ledger.url, name) as seen:
            every = {x.check: x for x in examine(seen)}
        unchecked = every["jobs"]
        assert unchecked.severity == "unchecked" and "permission denied" in unchecked.found
        assert "GRANT cronledger_viewer TO" in str(unchecked.remedy)
        neither = every["roles"]
        assert neither.severity == "warning" and "executions: INSERT" in neither.found
        assert neither.remedy == f"to run replicas with it: GRANT cronledger_runner TO {name}"
    finally:
        ledger.values(f"DROP OWNED BY {name}")
        ledger.values(f"DROP ROLE {name}")


def test_roles_that_are_not_there(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_server, "ARRIVES_SECONDS", 0.1)  # none arrives before a COMMIT
    with patient(ledger.url) as seen, seen.connection.transaction(force_rollback=True):
        seen.connection.execute("ALTER ROLE cronledger_viewer RENAME TO cronledger_test_away")
        (finding,) = [x for x in examine(seen) if x.check == "roles"]
    assert finding.found == "missing roles: cronledger_viewer"
    assert finding.remedy is not None
    assert finding.remedy.startswith("CREATE ROLE cronledger_viewer NOLOGIN; then")


def test_clock(ledger: Ledger) -> None:
    # The database's clock has travelled to tomorrow.
    assert told(ledger, "clock").startswith("warning: compared with the database: this host -")
    return_to_present(ledger)
    assert one(ledger.url, "clock").severity == "ok"
    ledger.runner(clock_skew=timedelta(seconds=-4))
    assert one(ledger.url, "clock").found == "compared with the database: runner r1 -4.0 s"
    ledger.values("UPDATE runners SET state = 'stopped'")
    assert one(ledger.url, "clock").severity == "ok"


def test_time_zones(ledger: Ledger) -> None:
    ledger.runner(fingerprint=cron.FINGERPRINT)
    assert one(ledger.url, "time_zones").severity == "ok"
    ledger.runner("old", fingerprint={**cron.FINGERPRINT, "tzdata": "2020.1"})
    apart = told(ledger, "time_zones")
    assert f"warning: tzdata 2020.1, croniter {cron.FINGERPRINT['croniter']}: old; " in apart
    assert ": r1, this host -> " in apart
    ledger.values("UPDATE runners SET stale_after = db_now() WHERE id = 'old'")
    assert one(ledger.url, "time_zones").severity == "ok"


@pytest.mark.long
def test_tables(ledger: Ledger) -> None:
    ledger.values("ALTER TABLE skips SET (autovacuum_enabled = off)")
    assert one(ledger.url, "tables").found == "autovacuum is disabled on skips"
    ledger.values(
        "INSERT INTO skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,"
        " count, reason, revision) SELECT 'j', 'global', 'global', at, at, 1, 'missed', 1"
        " FROM generate_series(1, 10001) n, LATERAL (SELECT db_now() + n * interval '1 s') t(at)"
    )
    with psycopg.connect(ledger.url, autocommit=True) as c:
        c.execute("UPDATE cronledger.skips SET count = 1")
        c.execute("SELECT pg_stat_force_next_flush()")
    ledger.values("SELECT pg_stat_clear_snapshot()")

    def said() -> list[str]:
        return [finding.found for finding in found(ledger.url, "tables")]

    until("the statistics are there", lambda: "never analyzed: skips" in said())
    ledger.values("ANALYZE skips")
    until("they are analyzed", lambda: "never analyzed: skips" not in said())
    ledger.values("DELETE FROM skips")
    until("they are dead", lambda: any(x.startswith("more dead rows") for x in said()))
    ledger.values("VACUUM skips")
    ledger.values("ALTER TABLE skips RESET (autovacuum_enabled)")
    until("all is well", lambda: said() == ["vacuumed and analyzed"])


def test_horizon(ledger: Ledger) -> None:
    with psycopg.connect(ledger.url, application_name="sleeper") as other:
        other.execute("SELECT 1")
        return_to_present(ledger)
        assert one(ledger.url, "horizon").severity == "ok"
        ledger.travel(by=timedelta(minutes=6))
        old = told(ledger, "horizon")
        assert old.startswith("warning: ") and "sleeper of" in old
        assert "idle in transaction, open for 6m" in old
        assert old.endswith(f" -> end it: SELECT pg_terminate_backend({other.info.backend_pid})")
    assert one(ledger.url, "horizon").severity == "ok"


def test_what_is_hidden_from_a_role_is_not_passed_over(ledger: Ledger) -> None:
    with patient(ledger.url, "cronledger_viewer") as seen:
        hidden = [x for x in doctor_ledger.horizon(seen) if "are hidden from" in x.found]
        assert seen.row("examine_server")["connections"] >= 2  # the test's own, and this one
    assert [x.severity for x in hidden] == ["warning"]
    assert hidden[0].remedy is not None
    assert hidden[0].remedy.endswith("GRANT pg_read_all_stats TO cronledger_viewer")


def test_jit(ledger: Ledger) -> None:
    this_database(ledger, "SET jit_above_cost = 0")
    this_database(ledger, "SET jit = on")
    with psycopg.connect(ledger.url) as c:  # a session with these settings
        ((compiles,),) = c.execute("SELECT pg_jit_available()")  # where there is a provider for it
    assert one(ledger.url, "jit").severity == ("warning" if compiles else "ok")
    this_database(ledger, "SET jit = off")
    assert one(ledger.url, "jit").severity == "ok"
    assert doctor_ledger.compiling(["Result", "JIT:", "  Functions: 3"]).severity == "warning"


def drop_partition(ledger: Ledger, days: int) -> datetime:
    """Drop the partition of so many days from now, and return its beginning."""
    ((name, first),) = ledger.values(
        "SELECT name, from_plan_time FROM partitions() WHERE db_now() + %s >= from_plan_time"
        " AND db_now() + %s < before_plan_time", days * DAY, days * DAY,
    )  # fmt: skip
    ledger.values(f"DROP TABLE {name}")
    beginning: datetime = first
    return beginning


def test_partitions_end_or_are_missing_ahead(ledger: Ledger) -> None:
    first = drop_partition(ledger, 14)  # neither the last one, nor within 7 days
    (hole,) = found(ledger.url, "partitions")
    assert hole.severity == "warning" and f"from {first.astimezone(UTC):%FT%TZ} to" in hole.found
    drop_partition(ledger, 0)
    now, *_ = found(ledger.url, "partitions")
    assert (now.severity, "partitions, 0s ahead" in now.found) == ("problem", True)
    ledger.values("SELECT maintain_partitions()")
    assert one(ledger.url, "partitions").severity == "ok"
    end = ledger.one("SELECT max(before_plan_time) FROM partitions()")
    ledger.travel(to=end - 6 * DAY)
    assert one(ledger.url, "partitions").severity == "warning"
    ledger.travel(to=end - DAY / 2)
    gone = told(ledger, "partitions")
    assert gone.startswith("problem: ") and "maintain_partitions()" in gone


@pytest.mark.long
def test_a_hole_behind(ledger: Ledger) -> None:
    ledger.travel(by=28 * DAY)
    ledger.values("SELECT maintain_partitions()")
    drop_partition(ledger, -14)
    assert one(ledger.url, "partitions").severity == "ok"  # there were no jobs at that time
    ledger.job("j")
    ledger.values("UPDATE job_revisions SET effective_from = db_now() - interval '28 days'")
    hole = one(ledger.url, "partitions")
    assert (hole.severity, "executions may be lost" in hole.found) == ("problem", True)
    assert hole.remedy is not None
    ledger.values(hole.remedy.partition(": ")[2])
    assert one(ledger.url, "partitions").severity == "ok"


def test_partitions_that_were_dropped_behind_retention_are_no_hole(ledger: Ledger) -> None:
    ledger.job("j")
    ledger.travel(by=28 * DAY)
    ledger.values("SELECT set_retention('14 days')")
    ledger.values("SELECT maintain_partitions()")
    assert one(ledger.url, "partitions").severity == "ok"
    ((name, first),) = ledger.values("SELECT name, from_plan_time FROM partitions() LIMIT 1")
    ledger.values(f"DROP TABLE {name}")
    hole = told(ledger, "partitions")
    assert hole.startswith("problem: ") and f"from {first.astimezone(UTC):%FT%TZ} to" in hole


@pytest.mark.long
def test_retention(ledger: Ledger) -> None:
    ledger.job("monthly", catch_up_window="60 days", catch_up="latest")
    assert one(ledger.url, "retention").severity == "ok"
    ledger.values("SELECT set_retention('50 days')")
    longer = "warning: 50d, but catch_up_window is longer of: monthly -> shorten catch_up_window"
    assert told(ledger, "retention").startswith(longer)
    ledger.values("UPDATE jobs SET catch_up = 'skip'")
    assert one(ledger.url, "retention").severity == "ok"
    ledger.job("j")
    ledger.trigger("j")
    ledger.travel(by=120 * DAY)
    ledger.values("SELECT maintain_partitions()")
    kept = one(ledger.url, "retention")
    assert (kept.severity, kept.found.count("executions_p")) == ("warning", 1)
    ledger.values("SELECT cancel(id) FROM executions")
    ledger.values("SELECT maintain_partitions()")
    assert one(ledger.url, "retention").severity == "ok"


def test_runners(ledger: Ledger) -> None:
    ledger.job("j", handler="command", target={"command": "true"})
    assert told(ledger, "runners").startswith("problem: no replica is alive -> start one")
    ledger.runner()
    assert one(ledger.url, "runners").found == "1 alive"
    ledger.runner("idle", queues=["reports"])
    assert "idle (reports)" in one(ledger.url, "runners").found
    ledger.values("DELETE FROM runners WHERE id = 'idle'")
    ledger.runner("dead", heartbeat_at=ledger.now() - timedelta(minutes=3),
           stale_after=ledger.now() - timedelta(minutes=2))  # fmt: skip
    assert "dead (3m" in one(ledger.url, "runners").found
    ledger.values("DELETE FROM runners WHERE id = 'dead'")
    ledger.runner("full", diagnostics={"failing": {"finisher": "DiskFull: no space"}})
    failing = "problem: failing: full (finisher: DiskFull: no space) -> correct the error"
    assert told(ledger, "runners").startswith(failing)


def test_versions_are_mixed_for_an_hour_at_most(ledger: Ledger) -> None:
    at = ledger.now()
    for name, version, minutes in (("a", "1.0", 600), ("b", "1.1", 59), ("c", "1.1", 1)):
        ledger.runner(name, version=version, started_at=at - timedelta(minutes=minutes))
    ledger.runner("shell", version="external", started_at=at - timedelta(days=1))
    assert one(ledger.url, "versions").severity == "ok"
    ledger.values("UPDATE runners SET started_at = started_at - interval '2 min'")
    mixed = told(ledger, "versions")
    assert mixed.startswith("warning: replicas of different versions have run for 1h1m")
    assert ": 1.0: a; 1.1: b, c -> finish the deployment" in mixed
    ledger.values("UPDATE runners SET state = 'stopped' WHERE id = 'a'")
    assert one(ledger.url, "versions").severity == "ok"


def test_jobs_without_a_runner(ledger: Ledger) -> None:
    """Also with their labels."""
    default: dict[str, Any] = {"handlers": ["tests:other"]}
    cases: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ({"handler": "python"}, default, {"handlers": ["tests:work"]}),
        ({"handler": "sql"}, {**default, "queues": []}, {}),
        (
            {"handler": "sql", "on": ["role=web"]}, {**default, "labels": ["role=db"]},
            {"labels": ["role=web"]},
        ),
        (
            {"handler": "external"}, {**default, "queues": []},
            {"queues": [], "version": "external", "handlers": ["external:default"]},
        ),
    ]  # fmt: skip
    for job, other, able in cases:
        ledger.values("DELETE FROM runners")
        ledger.values("DELETE FROM jobs")
        ledger.job("j", **job)
        ledger.runner("elsewhere", queues=["reports"], handlers=["tests:work"])
        ledger.runner("other", **other)
        alone = one(ledger.url, "jobs")
        assert (alone.severity, "j (queue default" in alone.found) == ("problem", True)
        ledger.edit("j", paused_at=ledger.now())
        assert one(ledger.url, "jobs").severity == "ok"
        ledger.edit("j", paused_at=None)
        ledger.runner("able", **able)
        assert one(ledger.url, "jobs").severity == "ok"


def test_jobs_without_a_runner_on_one_of_their_hosts_F120(ledger: Ledger) -> None:
    """Of the hosts that are present: an absent host runs nothing."""
    ledger.job("j", scope_kind="host", scopes=["web1", "web2", "web3"])
    for host, through in (("web1", "+1 h"), ("web2", "+1 h"), ("web3", "-1 h")):
        ledger.values(
            "UPDATE hosts SET present_from = db_now() - interval '1 day',"
            " present_through = db_now() + %s::interval WHERE name = %s RETURNING name",
            through, host,
        )  # fmt: skip
    ledger.runner("one", host="web1", handlers=["tests:work"], labels=["host=web1"])
    ledger.runner("two", host="web2", handlers=["tests:other"], labels=["host=web2"])
    missing = "j (queue default, function tests:work) on web2"
    assert told(ledger, "jobs").startswith(f"problem: no live runner can run {missing} -> start")
    ledger.runner("able", host="web2", handlers=["tests:work"], labels=["host=web2"])
    assert one(ledger.url, "jobs").severity == "ok"


def test_jobs_that_cannot_be_planned(ledger: Ledger) -> None:
    ledger.runner()
    ledger.job("j", handler="sql", schedule="@daily")
    ledger.values("UPDATE jobs SET spec_error = 'no such day'")
    assert told(ledger, "jobs") == "problem: j cannot be planned: no such day -> edit the job"
    ledger.edit("j", schedule="@hourly")
    assert one(ledger.url, "jobs").severity == "ok"


def test_steps_that_could_not_run_are_reported_with_the_session_that_has_the_turn(
    ledger: Ledger,
) -> None:
    ledger.job(finish_by="1h", notify=Jsonb([{"channel": "ops"}]), schedule="@hourly")
    ledger.runner(stale_after=ledger.now() + 2 * DAY)
    ledger.values("UPDATE turns SET taken_at = db_now()")
    assert one(ledger.url, "steps").severity == "ok"
    with psycopg.connect(ledger.url) as other:
        other.execute("SELECT FROM cronledger.turns WHERE step <> 'hours' FOR UPDATE")
        ledger.travel(by=timedelta(minutes=10))
        late = found(ledger.url, "steps")
        assert [x.found.partition(" for 10m")[0] for x in late] == [
            "alerts were not raised", "deadlines were not judged",
        ]  # fmt: skip
        ledger.travel(by=DAY)
        late = found(ledger.url, "steps")
        assert {x.severity for x in late} == {"problem"}
        pid = other.info.backend_pid
        remedy = f"end that session: SELECT pg_terminate_backend({pid})"
        log = "see `step_failed` in the logs of the replicas"
        assert [x.remedy for x in late] == [remedy, remedy, log, remedy]
        assert [f"pid {pid} of role " in x.found for x in late] == [True, True, False, True]
    for step in (
        "cronledger_internal.raise_alerts(100)", "maintain_partitions()",
        "cronledger_internal.mark_changed_hours('0', 100)", "cronledger_internal.lock_deadlines(9)",
    ):  # fmt: skip
        ledger.values(f"SELECT {step}")
    assert one(ledger.url, "steps").severity == "ok"


def test_a_lease_that_ended_without_an_end_of_its_execution(ledger: Ledger) -> None:
    ledger.job("j", handler="external", allow_stale_reentry=True)
    ledger.trigger("j")
    id, token = ledger.one("SELECT id, lease_token::text FROM claim_next('default', 'w')")
    assert one(ledger.url, "leases").severity == "ok"
    ledger.travel(by=timedelta(minutes=3))
    expired = told(ledger, "leases")
    assert expired.startswith(f"problem: execution {id} of j is RUNNING: its lease ended at")
    assert "; no worker has claimed it again yet -> start what is missing" in expired
    ledger.values("SELECT finish(%s, %s::uuid)", id, token)
    assert one(ledger.url, "leases").severity == "ok"


@pytest.mark.long
def test_queues(ledger: Ledger) -> None:
    ledger.job("j")
    ledger.values("SELECT pause_queue('default', 'a migration', 'ann')")
    assert one(ledger.url, "queues").severity == "ok"
    ledger.travel(by=3 * DAY)
    paused = "warning: default was paused 3 days ago by ann: a migration"
    assert told(ledger, "queues") == f"{paused} -> run `cronledger queues resume default`"
    ledger.values("SELECT resume_queue('default')")
    assert one(ledger.url, "queues").severity == "ok"


def test_verification(ledger: Ledger) -> None:
    never = "warning: no run over all jobs and all history is recorded -> run"
    assert told(ledger, "verification").startswith(never)
    with psycopg.connect(ledger.url, autocommit=True) as c:
        Recording.begin(c, "cronledger", job=None, from_=None, to=None, requested_by="killed")
    assert told(ledger, "verification").startswith(never)
    verified(ledger, missing=2, early=1)
    bad = told(ledger, "verification")
    assert bad.startswith("problem: ") and "found violations: 1 early, 2 missing ->" in bad
    verified(ledger)
    good = r"ok: all history was checked by me \w+ ago; no violation was found -> None"
    assert re.fullmatch(good, told(ledger, "verification"))
    ledger.values("UPDATE verification_runs SET finished_at = finished_at - interval '8 days'")
    old = "warning: all history was checked by me 8 days ago -> run"
    assert told(ledger, "verification").startswith(old)


def test_a_run_of_one_job_counts_until_its_plan_times_are_checked_again(ledger: Ledger) -> None:
    verified(ledger, job="j", missing=1)
    bad, never = found(ledger.url, "verification")
    assert bad.severity == "problem" and " of j, by me " in bad.found
    assert never.severity == "warning"
    verified(ledger)
    assert one(ledger.url, "verification").severity == "ok"


def test_runs_over_parts_count_if_they_continue_a_run_over_everything(ledger: Ledger) -> None:
    def after(*runs: tuple[int | None, int]) -> Finding:
        ledger.values("DELETE FROM verification_runs")
        for first, through in runs:
            verified(ledger, first=first, through=through)
        return one(ledger.url, "verification")

    part = after((2, 1), (1, 0))
    assert part.severity == "warning"
    assert part.found.endswith("is recorded; the recorded runs checked a part of it")
    gap = after((None, 20), (12, 11), (1, 0))
    assert (gap.severity, gap.found) == ("warning", "all history was checked by me 20 days ago")
    continued = after((None, 20), (21, 9), (10, 3))
    assert continued.severity == "ok"
    assert "and later runs continued until 3 days ago" in continued.found


def test_violations(ledger: Ledger) -> None:
    ledger.job("j", handler="sql")
    assert one(ledger.url, "violations").severity == "ok"
    at = ledger.now().replace(microsecond=0)
    execution(ledger.db, job="j", plan_time=at, started_at=at - timedelta(hours=1))
    assert told(ledger, "violations").startswith("problem: 1 early -> run `cronledger verify`")
    ledger.values("UPDATE executions SET started_at = due_at")
    assert one(ledger.url, "violations").severity == "ok"


@pytest.mark.long
def test_objects(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also triggers, sequences and a schema, as after a restore of `cronledger` alone."""
    monkeypatch.setattr(findings, "MOST_NAMED", 10_000)
    assert one(ledger.url, "objects").severity == "ok"
    ledger.values("DROP TRIGGER append_revision ON jobs")
    ledger.values("DROP SCHEMA cronledger_internal CASCADE")
    damaged = one(ledger.url, "objects")
    assert damaged.severity == "problem"
    assert "trigger jobs.append_revision" in damaged.found
    assert "function apply_overlap(" in damaged.found
    assert "run `cronledger migrate`" in str(damaged.remedy)
    assert migrate(ledger.url) == [REPEATED]
    assert one(ledger.url, "objects").severity == "ok"
    ledger.values("DROP SEQUENCE acceptance_id CASCADE")
    lost = one(ledger.url, "objects")
    assert (lost.severity, lost.found) == ("problem", "dropped: sequence acceptance_id")
    assert "restore it from a backup" in str(lost.remedy)


@pytest.mark.long
def test_a_check_that_cannot_be_made_hides_nothing_else(ledger: Ledger) -> None:
    ledger.values("DROP VIEW queue_status CASCADE")
    with patient(ledger.url) as seen:
        every = {x.check: x for x in examine(seen)}
    assert (every["queues"].severity, every["queues"].remedy) == (
        "unchecked",
        "first correct the problems of `objects` or `schema`",
    )
    assert every["partitions"].severity == "ok"
