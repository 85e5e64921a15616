"""Checks of the ledger."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Any

from psycopg import sql

from cronledger.explain.doctor_alerts import alerts
from cronledger.explain.doctor_verification import verification
from cronledger.explain.findings import (
    MOST_NAMED,
    Check,
    DoctorContext,
    Finding,
    about,
    named,
    otherwise_ok,
)
from cronledger.ledger import identity as identities
from cronledger.ledger import migrate as migrations
from cronledger.ledger.schemas import internal
from cronledger.rules import durations
from cronledger.rules.calendar_spec import ENDS_SOON
from cronledger.rules.instants import iso

SKEW = timedelta(seconds=2)
MANY_ROWS = 10_000
ROLLOUT = timedelta(hours=1)
"""The longest time for which live replicas may have different versions."""


def schema(context: DoctorContext) -> Iterator[Finding]:
    """Check that the schema is the one that this program needs."""
    name = context.settings.schema_name
    try:
        with context.transaction():
            state = migrations.state(context.connection, name)
        migrations.require_usable(state)
    except (migrations.MigrationError, migrations.SchemaNewerError) as error:
        remedy = "use the cronledger version that migrated it"
        yield Finding("schema", "problem", str(error), remedy)
        return
    missing = [
        found.name
        for found in state.pending
        if found.phase == "pre" or (found.phase == "repeated" and not state.damaged)
    ]
    if missing:
        found = f"schema {name} does not have {named(missing)}"
        yield Finding("schema", "problem", found, "run `cronledger migrate`")
    elif state.pending:
        found = f"migrations of schema {name} are pending: {named(m.name for m in state.pending)}"
        remedy = "run `cronledger migrate` when no older cronledger runs"
        yield Finding("schema", "warning", found, remedy)
    else:
        found = f"schema {name} is up to date for cronledger {metadata.version('cronledger')}"
        yield Finding("schema", "ok", found)
    if not missing or state.lost or state.damaged:
        yield from objects(state)


@otherwise_ok("all tables, functions and views exist")
def objects(state: migrations.SchemaState) -> Iterator[Finding]:
    """Check that all objects of the applied migrations exist."""
    if state.lost:
        remedy = "restore it from a backup, because a numbered migration is applied only once"
        yield Finding("objects", "problem", f"dropped: {named(state.lost)}", remedy)
    if state.damaged:
        remedy = "run `cronledger migrate`, which creates functions and views again"
        yield Finding("objects", "problem", f"dropped: {named(state.damaged)}", remedy)


def identity(context: DoctorContext) -> Iterator[Finding]:
    """Check that this is the ledger's own database."""
    with context.transaction():
        why = identities.other_database(context.connection, context.settings.schema_name)
    if why is not None:
        yield Finding("identity", "problem", f"a different database: {why}", identities.ACCEPT)
    elif changes := context.rows("examine_failover"):
        (change,) = changes
        at = "not recorded yet" if change["at"] is None else f"at {iso(change['at'], 'seconds')}"
        found = (
            f"the server changed from timeline {change['was']} to {change['now']} ({at}), which is "
            "trusted because a runner had checked in within 10 minutes before"
        )
        yield Finding("identity", "warning", found, identities.CONFIRM)
    else:
        name = context.settings.ledger_name
        of = "the ledger's" if name is None else f"the ledger {name}'s"
        yield Finding("identity", "ok", f"{of} own database")


def roles(context: DoctorContext) -> Iterator[Finding]:
    """Check the rights of the group roles, and that the current role may run replicas."""
    row = context.row("examine_roles")
    if row["missing"]:
        remedy = "; ".join(f"CREATE ROLE {name} NOLOGIN" for name in row["missing"])
        found = f"missing roles: {named(row['missing'])}"
        yield Finding("roles", "warning", found, f"{remedy}; then `cronledger migrate`")
    if row["ungranted"]:
        found = f"rights of the group roles are missing: {named(row['ungranted'])}"
        remedy = f"run `cronledger migrate` as {shlex.quote(row['owner'])}, the owner of the schema"
        yield Finding("roles", "warning", found, remedy)
    # A login of the page or of Prometheus must not become one of a replica.
    if row["lacking"] and not row["reads"]:
        found = f"{row['role']} may not run replicas; missing rights: {named(row['lacking'])}"
        remedy = f"to run replicas with it: GRANT cronledger_runner TO {row['role']}"
        yield Finding("roles", "warning", found, remedy)
    if not row["missing"] and not row["ungranted"] and not row["lacking"]:
        yield Finding("roles", "ok", f"{row['role']} may run replicas")
    elif not row["missing"] and not row["ungranted"] and row["reads"]:
        yield Finding("roles", "ok", f"{row['role']} may read, but not run replicas")


@otherwise_ok("this host and the live runners agree with the database")
def clock(context: DoctorContext) -> Iterator[Finding]:
    """Compare the clocks of this host and of live runners with the database's clock."""
    before = datetime.now(UTC)  # noqa: TID251 - shown to people; decides nothing
    at = context.row("read_clock")["now"]
    after = datetime.now(UTC)  # noqa: TID251 - shown to people; decides nothing
    ahead = before - at if before > at else min(timedelta(0), after - at)
    wrong = [f"this host {_shift(ahead)}"] if abs(ahead) > SKEW else []
    wrong += [
        f"runner {row['id']} {_shift(row['clock_skew'])}"
        for row in context.rows("examine_runners")
        if row["alive"] and abs(row["clock_skew"]) > SKEW
    ]
    if wrong:
        remedy = "run NTP there; these clocks only affect logs, and never decide what fires"
        yield Finding("clock", "warning", f"compared with the database: {named(wrong)}", remedy)


def _shift(skew: timedelta) -> str:
    return f"{'+' if skew > timedelta(0) else '-'}{abs(skew).total_seconds():.1f} s"


def time_zones(context: DoctorContext) -> Iterator[Finding]:
    """Check that all planning runners read schedules with the same data."""
    seen: dict[tuple[Any, Any], list[str]] = {}
    for row in context.rows("examine_runners"):
        if row["alive"] and not row["external"] and row["tzdata"] is not None:
            seen.setdefault((row["tzdata"], row["croniter"]), []).append(row["id"])
    if context.fingerprint:
        here = (context.fingerprint.get("tzdata"), context.fingerprint.get("croniter"))
        seen.setdefault(here, []).append("this host")
    versions = [f"tzdata {tz}, croniter {cron}: {named(who)}" for (tz, cron), who in seen.items()]
    if len(seen) > 1:
        remedy = (
            "install the same tzdata and croniter everywhere; until then, only the runners with "
            "the newest versions plan"
        )
        yield Finding("time_zones", "warning", "; ".join(sorted(versions)), remedy)
    else:
        yield Finding("time_zones", "ok", versions[0] if versions else "no runner plans")


@otherwise_ok("vacuumed and analyzed")
def tables(context: DoctorContext) -> Iterator[Finding]:
    """Check that vacuum and analyze keep up."""
    rows = context.rows("examine_tables", rows=MANY_ROWS)
    disabled = [row["name"] for row in rows if row["disabled"]]
    bloated = [f"{row['name']} ({row['dead']})" for row in rows if row["bloated"]]
    unanalyzed = [row["name"] for row in rows if row["unanalyzed"]]
    if disabled:
        remedy = f"ALTER TABLE {context.settings.schema_name}.… RESET (autovacuum_enabled)"
        yield Finding("tables", "problem", f"autovacuum is disabled on {named(disabled)}", remedy)
    if bloated:
        remedy = "VACUUM them; `horizon` shows what prevents it"
        found = f"more dead rows than live rows: {named(bloated)}"
        yield Finding("tables", "warning", found, remedy)
    if unanalyzed:
        remedy = "run ANALYZE on them, because their statements have plans for empty tables"
        yield Finding("tables", "warning", f"never analyzed: {named(unanalyzed)}", remedy)


@otherwise_ok("no old snapshot prevents vacuum")
def horizon(context: DoctorContext) -> Iterator[Finding]:
    """Check for old snapshots, which prevent vacuum from removing dead rows."""
    for row in context.rows("examine_horizon"):
        age = "" if row["age"] is None else f", open for {about(row['age'])}"
        yield Finding("horizon", "warning", f"{row['holder']}{age}", row["remedy"])


def jit(context: DoctorContext) -> Iterator[Finding]:
    """Check that queries of the views are not compiled, which takes longer than the queries."""
    view = sql.Identifier(context.settings.schema_name, "overdue")
    # Not in `context.transaction`, which switches JIT off. EXPLAIN does not run the query.
    plan = context.connection.execute(sql.SQL("EXPLAIN SELECT * FROM {}").format(view)).fetchall()
    yield compiling([line for (line,) in plan])


def compiling(plan: Sequence[str]) -> Finding:
    """Return the finding for a plan, the lines of EXPLAIN."""
    if "JIT:" in plan:
        remedy = "ALTER DATABASE … SET jit = off, or ALTER ROLE for the roles that read the views"
        found = "queries of the views are compiled before they run"
        return Finding("jit", "warning", found, remedy)
    return Finding("jit", "ok", "queries of the views are not compiled")


def partitions(context: DoctorContext) -> Iterator[Finding]:
    """Check that there are partitions for future executions, and that no range lacks one."""
    row = context.row("examine_partitions")
    schema = context.settings.schema_name
    remedy = (
        "start a replica, which creates them hourly, or run with the role of replicas: "
        f"SELECT * FROM {schema}.maintain_partitions()"
    )
    holes = list(zip(row["holes_from"] or (), row["holes_before"] or (), strict=True))
    ahead = max(row["ahead"] or timedelta(0), timedelta(0))
    found = f"{row['partitions']} partitions, {about(ahead)} ahead"
    if ahead < timedelta(days=1):
        yield Finding("partitions", "problem", found, remedy)
    elif ahead < timedelta(days=7):
        yield Finding("partitions", "warning", found, remedy)
    elif not holes:
        yield Finding("partitions", "ok", found)
    for first, before in holes:
        start, end = iso(first, "seconds"), iso(before, "seconds")
        found = f"there is no partition for plan_times from {start} to {end}"
        if before > row["now"]:
            yield Finding("partitions", "warning", found, remedy)
        else:
            lost = f"{found}, which were not pruned, so executions may be lost"
            yield Finding("partitions", "problem", lost, _refilled(schema, start, end))


def _refilled(schema: str, start: str, end: str) -> str:
    return (
        f"restore it, or accept the violations of `cronledger verify --from {start} --to {end}`, "
        f"and create it as the owner of the tables: SELECT {internal(schema)}.create_partitions("
        f"'{start}', '{end}'::timestamptz - interval '1 us', 604800)"
    )


def retention(context: DoctorContext) -> Iterator[Finding]:
    """Check that old partitions are dropped, and that no job runs what is older."""
    row = context.row("examine_partitions")
    keep, kept, forgetful = durations.format(row["retention"]), row["kept"], row["forgetful"]
    if kept:
        remedy = (
            "end the executions in them that are PENDING, RUNNING or waiting for a retry "
            "(`executions list`)"
        )
        found = f"older than {keep}, but not dropped: {named(kept)}"
        yield Finding("retention", "warning", found, remedy)
    if forgetful:
        remedy = "shorten catch_up_window, or lengthen it with `cronledger retention set`"
        found = f"{keep}, but catch_up_window is longer of: {named(forgetful)}"
        yield Finding("retention", "warning", found, remedy)
    if not kept and not forgetful:
        yield Finding("retention", "ok", f"nothing is older than {keep}")


def runners(context: DoctorContext) -> Iterator[Finding]:
    """Check that replicas are alive and work, and that their queues have jobs."""
    rows = context.rows("examine_runners")
    alive = [row for row in rows if row["alive"]]
    dead = [f"{row['id']} ({about(row['seen_ago'])} ago)" for row in rows if not row["alive"]]
    failing = [f"{row['id']} ({row['failing']})" for row in alive if row["failing"]]
    idle = [
        f"{row['id']} ({', '.join(row['queues']) or 'external'})"
        for row in alive
        if not row["has_jobs"]
    ]
    if not any(not row["external"] for row in alive):
        remedy = "start one with `cronledger run`"
        yield Finding("runners", "problem", "no replica is alive", remedy)
    if failing:
        remedy = "correct the error, for example a full disk; see their logs and /readyz"
        yield Finding("runners", "problem", f"failing: {named(failing)}", remedy)
    if dead:
        remedy = (
            "see their logs and memory limits; the rows are removed a day after the last check-in"
        )
        yield Finding("runners", "warning", f"stopped without a drain: {named(dead)}", remedy)
    if idle:
        remedy = "set their queues (CRONLEDGER_QUEUES, --queue) to queues of jobs"
        found = f"runners whose queues have no jobs: {named(idle)}"
        yield Finding("runners", "warning", found, remedy)
    if alive and not failing and not dead and not idle:
        yield Finding("runners", "ok", f"{len(alive)} alive")


@otherwise_ok("all live replicas have one version, or were started within an hour")
def versions(context: DoctorContext) -> Iterator[Finding]:
    """Check that a deployment of another version has replaced all replicas within an hour."""
    running: dict[str, list[dict[str, Any]]] = {}
    for row in context.rows("examine_runners"):
        if row["alive"] and not row["external"]:
            running.setdefault(row["version"], []).append(row)
    # Versions are mixed since the first replica of the last version was started.
    mixed_for = min((max(r["age"] for r in rows) for rows in running.values()), default=None)
    if len(running) > 1 and mixed_for is not None and mixed_for > ROLLOUT:
        found = "; ".join(
            f"{version}: {named(row['id'] for row in rows)}"
            for version, rows in sorted(running.items())
        )
        remedy = "finish the deployment: restart the replicas of the old version with the new one"
        found = f"replicas of different versions have run for {about(mixed_for)}: {found}"
        yield Finding("versions", "warning", found, remedy)


@otherwise_ok("a live runner can run each job")
def jobs(context: DoctorContext) -> Iterator[Finding]:
    """Check that a live runner can run each job, on each present host that has to run it."""
    rows = context.rows("examine_jobs")
    for row in rows:
        if row["spec_error"] is not None:
            found = f"{row['name']} cannot be planned: {row['spec_error']}"
            yield Finding("jobs", "problem", found, "edit the job")
    alone = [
        f"{row['name']} (queue {row['queue']}{_needs(row)})"
        for row in rows
        if not row["able"] and row["spec_error"] is None
    ]
    if alone:
        remedy = (
            "start a replica with this queue, these labels and this function (external: its "
            "worker; queue alerts: any replica), or pause the jobs"
        )
        yield Finding("jobs", "problem", f"no live runner can run {named(alone)}", remedy)
    partly = [
        f"{row['name']} (queue {row['queue']}{_needs(row)}) on {named(row['hosts'])}"
        for row in rows
        if row["able"] and row["spec_error"] is None
    ]
    if partly:
        remedy = (
            "start a replica with this queue, these labels and this function on each of these "
            "hosts, or remove the labels from their replicas"
        )
        yield Finding("jobs", "problem", f"no live runner can run {'; '.join(partly)}", remedy)


def _needs(row: dict[str, Any]) -> str:
    python = row["handler"] == "python"
    needs = f", function {row['function']}" if python else ""
    if row["handler"] == "external":
        needs = ", external"
    if row["on"]:
        needs += f", labels {','.join(row['on'])}; live runners have {row['live'] or 'none'}"
    return needs


@otherwise_ok(f"no calendar that a job uses ends within {ENDS_SOON.days} days")
def calendars(context: DoctorContext) -> Iterator[Finding]:
    """Check that no calendar that a job uses ends soon, because its jobs do not fire after it."""
    for row in context.rows("examine_calendars", days=ENDS_SOON.days):
        used = "1 job" if row["jobs"] == 1 else f"{row['jobs']} jobs"
        found = (
            f"{row['name']} {'ended' if row['is_over'] else 'ends'} on {row['through']} ({used})"
        )
        declared = "call set_calendar() with a later date"
        if row["source"] is not None:
            declared = (
                f"apply {shlex.quote(row['source'])} again, with a later `through` if it has one"
            )
        yield Finding("calendars", "problem" if row["is_over"] else "warning", found, declared)


@otherwise_ok("no execution is RUNNING without a lease")
def leases(context: DoctorContext) -> Iterator[Finding]:
    """Check for executions whose lease has ended, and that no runner has taken over or ended."""
    for row in context.rows("examine_leases", max_rows=MOST_NAMED):
        found = f"execution {row['id']} of {row['job_name']} is RUNNING: {row['detail']}"
        remedy = f"start what is missing, or end it: `cronledger executions cancel {row['id']}`"
        yield Finding("leases", "problem", found, remedy)


@otherwise_ok("all scope providers return")
def scopes(context: DoctorContext) -> Iterator[Finding]:
    """Check that the scope providers return."""
    for row in context.rows("examine_scope_providers"):
        if row["reason"] == "provider_failed":
            remedy = "correct the error; until then the job keeps its scopes"
        else:
            remedy = (
                f"start a replica that declares {shlex.quote(row['job_name'])} with its scope"
                " provider, or list its scopes in the job"
            )
        yield Finding("scopes", "problem", f"{row['job_name']}: {row['detail']}", remedy)


STEPS = {
    "alerts": "alerts were not raised",
    "deadlines": "deadlines were not judged",
    "hours": "sums by hour were not computed",
    "partitions": "partitions were not maintained",
}


@otherwise_ok("alerts, deadlines, sums by hour and the upkeep of partitions run")
def steps(context: DoctorContext) -> Iterator[Finding]:
    """Check that the steps which one replica at a time runs have run lately."""
    for row in context.rows("examine_steps"):
        found = f"{STEPS[row['step']]} for {about(row['idle_for'])}"
        remedy = "see `step_failed` in the logs of the replicas"
        if row["holder"] is not None:
            found += (
                f"; pid {row['holder']} of role {row['holder_role']} has had the turn for "
                f"{about(row['held_for'])}"
            )
            remedy = f"end that session: SELECT pg_terminate_backend({row['holder']})"
        yield Finding("steps", "problem", found, remedy)


@otherwise_ok("no queue was paused for more than a day")
def queues(context: DoctorContext) -> Iterator[Finding]:
    """Check for queues that were paused for more than a day."""
    for row in context.rows("examine_queues"):
        why = f": {row['paused_reason']}" if row["paused_reason"] else ""
        found = (
            f"{row['name']} was paused {about(row['paused_for'])} ago by {row['paused_by']}{why}"
        )
        remedy = f"run `cronledger queues resume {shlex.quote(row['name'])}`"
        yield Finding("queues", "warning", found, remedy)


@otherwise_ok("none that SQL alone can find")
def violations(context: DoctorContext) -> Iterator[Finding]:
    """Check for violations that SQL alone can find."""
    if rows := context.rows("examine_violations"):
        found = named(f"{row['count']} {row['kind']}" for row in rows)
        remedy = "run `cronledger verify`, and report this defect"
        yield Finding("violations", "problem", found, remedy)


CHECKS: tuple[Check, ...] = (
    identity, roles, clock, time_zones, tables, horizon, jit, partitions, retention, runners,
    versions, jobs, calendars, leases, scopes, steps, queues, violations, verification, alerts,
)  # fmt: skip
