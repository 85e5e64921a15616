"""Checks of `doctor` on the ledger itself."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Any

from psycopg import sql

from cronledger.explain.findings import Check, DoctorContext, Finding, named
from cronledger.ledger import identity as identities
from cronledger.ledger import migrate as migrations
from cronledger.ledger.schemas import internal
from cronledger.rules import durations

SKEW = timedelta(seconds=2)
MANY_ROWS = 10_000


def schema(patient: DoctorContext) -> Iterator[Finding]:
    """Whether the schema is the one that this program needs."""
    name = patient.settings.schema_name
    try:
        state = migrations.check(patient.url, name)
        migrations.require_usable(state)
    except (migrations.MigrationError, migrations.SchemaNewerError) as error:
        yield Finding("schema", "problem", str(error), "use the cronledger that migrated it")
        return
    missing = [
        found.name
        for found in state.pending
        if found.phase == "pre" or (found.phase == "repeated" and not state.damaged)
    ]
    if missing:
        found = f"{name} lacks {named(missing)}"
        yield Finding("schema", "problem", found, "run `cronledger migrate`")
    elif state.pending:
        found = f"{name} awaits {named(m.name for m in state.pending)}"
        remedy = "run `cronledger migrate` once no older cronledger runs"
        yield Finding("schema", "warning", found, remedy)
    else:
        found = f"{name} is up to date for cronledger {metadata.version('cronledger')}"
        yield Finding("schema", "ok", found)
    if not missing or state.lost or state.damaged:
        yield from _objects(state)


def _objects(state: migrations.SchemaState) -> Iterator[Finding]:
    """Whether what the applied migrations made is there."""
    if state.lost:
        remedy = "restore it from a backup; a numbered migration is applied only once"
        yield Finding("objects", "problem", f"somebody dropped {named(state.lost)}", remedy)
    if state.damaged:
        remedy = "run `cronledger migrate`, which creates functions and views again"
        yield Finding("objects", "problem", f"somebody dropped {named(state.damaged)}", remedy)
    if not state.lost and not state.damaged:
        yield Finding("objects", "ok", "tables, functions and views are there")


def identity(patient: DoctorContext) -> Iterator[Finding]:
    """Whether this is the ledger's own database."""
    why = identities.other_database(patient.connection, patient.settings.schema_name)
    if why is None:
        yield Finding("identity", "ok", "the ledger's own database")
    else:
        yield Finding("identity", "problem", f"another database: {why}", identities.ACCEPT)


def roles(patient: DoctorContext) -> Iterator[Finding]:
    """Whether the group roles have their rights, and this role may do what a replica does."""
    row = patient.row("examine_roles")
    if row["missing"]:
        remedy = "; ".join(f"CREATE ROLE {name} NOLOGIN" for name in row["missing"])
        found = f"there is no {named(row['missing'])}"
        yield Finding("roles", "warning", found, f"{remedy}; then `cronledger migrate`")
    if row["ungranted"]:
        found = f"rights of the group roles are missing: {named(row['ungranted'])}"
        remedy = f"run `cronledger migrate` as {row['owner']}, the owner of the schema"
        yield Finding("roles", "warning", found, remedy)
    if row["lacking"]:
        found = f"{row['role']} may not do what a replica does: {named(row['lacking'])}"
        remedy = f"to run replicas with it: GRANT cronledger_runner TO {row['role']}"
        yield Finding("roles", "warning", found, remedy)
    if not row["missing"] and not row["ungranted"] and not row["lacking"]:
        yield Finding("roles", "ok", f"{row['role']} may do what a replica does")


def clock(patient: DoctorContext) -> Iterator[Finding]:
    """This host's clock, and those of live runners, against the database's."""
    before = datetime.now(UTC)  # noqa: TID251 - shown to people; decides nothing
    at = patient.row("read_clock")["now"]
    after = datetime.now(UTC)  # noqa: TID251 - shown to people; decides nothing
    ahead = before - at if before > at else min(timedelta(0), after - at)
    wrong = [(f"this host {_shift(ahead)}")] if abs(ahead) > SKEW else []
    wrong += [
        f"runner {row['id']} {_shift(row['clock_skew'])}"
        for row in patient.rows("examine_runners")
        if row["alive"] and abs(row["clock_skew"]) > SKEW
    ]
    if wrong:
        remedy = "run NTP there; the database's clock decides what fires, theirs only misleads logs"
        yield Finding("clock", "warning", f"against the database: {named(wrong)}", remedy)
    else:
        yield Finding("clock", "ok", "this host and the live runners agree with the database")


def _shift(skew: timedelta) -> str:
    return f"{'+' if skew > timedelta(0) else '-'}{abs(skew).total_seconds():.1f} s"


def time_zones(patient: DoctorContext) -> Iterator[Finding]:
    """Whether all who plan read schedules by the same data."""
    seen: dict[tuple[Any, Any], list[str]] = {}
    for row in patient.rows("examine_runners"):
        if row["alive"] and not row["external"] and row["tzdata"] is not None:
            seen.setdefault((row["tzdata"], row["croniter"]), []).append(row["id"])
    if patient.fingerprint:
        here = (patient.fingerprint.get("tzdata"), patient.fingerprint.get("croniter"))
        seen.setdefault(here, []).append("this host")
    said = [f"tzdata {tz}, croniter {cron}: {named(who)}" for (tz, cron), who in seen.items()]
    if len(seen) > 1:
        remedy = "install the same tzdata and croniter everywhere; until then the newest plan"
        yield Finding("time_zones", "warning", "; ".join(sorted(said)), remedy)
    else:
        yield Finding("time_zones", "ok", said[0] if said else "nobody to compare")


def tables(patient: DoctorContext) -> Iterator[Finding]:
    """What vacuum and analyze neglect."""
    rows = patient.rows("examine_tables", rows=MANY_ROWS)
    disabled = [row["name"] for row in rows if row["disabled"]]
    bloated = [f"{row['name']} ({row['dead']})" for row in rows if row["bloated"]]
    unanalyzed = [row["name"] for row in rows if row["unanalyzed"]]
    if disabled:
        remedy = f"ALTER TABLE {patient.settings.schema_name}.… RESET (autovacuum_enabled)"
        yield Finding("tables", "problem", f"autovacuum is disabled on {named(disabled)}", remedy)
    if bloated:
        remedy = "VACUUM them; look at `horizon` for what keeps vacuum from it"
        yield Finding("tables", "warning", f"more dead rows than live: {named(bloated)}", remedy)
    if unanalyzed:
        remedy = "ANALYZE them: plans are made for empty tables"
        yield Finding("tables", "warning", f"never analyzed: {named(unanalyzed)}", remedy)
    if not disabled and not bloated and not unanalyzed:
        yield Finding("tables", "ok", "vacuumed and analyzed")


def horizon(patient: DoctorContext) -> Iterator[Finding]:
    """What keeps vacuum from removing dead rows."""
    rows = patient.rows("examine_horizon")
    for row in rows:
        age = "" if row["age"] is None else f", open for {_about(row['age'])}"
        yield Finding("horizon", "warning", f"{row['holder']}{age}", row["remedy"])
    if not rows:
        yield Finding("horizon", "ok", "no old snapshot holds up vacuum")


def jit(patient: DoctorContext) -> Iterator[Finding]:
    """Whether queries of the views are compiled for longer than they take; replicas turn it off."""
    view = sql.Identifier(patient.settings.schema_name, "overdue")
    plan = patient.connection.execute(sql.SQL("EXPLAIN SELECT * FROM {}").format(view)).fetchall()
    yield compiling([line for (line,) in plan])


def compiling(plan: Sequence[str]) -> Finding:
    """`plan`: the lines of EXPLAIN."""
    if "JIT:" in plan:
        remedy = "ALTER DATABASE … SET jit = off, or for the roles that read the views"
        found = "queries of the views are compiled before they run"
        return Finding("jit", "warning", found, remedy)
    return Finding("jit", "ok", "does not meddle")


def partitions(patient: DoctorContext) -> Iterator[Finding]:
    """Whether there is room for the executions to come, and nothing is lost between them."""
    row = patient.row("examine_partitions", retention=patient.settings.retention)
    schema = patient.settings.schema_name
    remedy = (
        f"SELECT * FROM {schema}.maintain_partitions() as a role that may; replicas do it hourly"
    )
    holes = list(zip(row["holes_from"] or (), row["holes_before"] or (), strict=True))
    ahead = max(row["ahead"] or timedelta(0), timedelta(0))
    found = f"{row['partitions']} partitions, {_about(ahead)} ahead"
    if ahead < timedelta(days=1):
        yield Finding("partitions", "problem", found, remedy)
    elif ahead < timedelta(days=7):
        yield Finding("partitions", "warning", found, remedy)
    elif not holes:
        yield Finding("partitions", "ok", found)
    for first, before in holes:
        start, end = _instant(first), _instant(before)
        found = f"there is none for plan_times from {start} to {end}"
        if before > row["now"]:
            yield Finding("partitions", "warning", found, remedy)
        else:
            lost = f"{found}, and none of them were pruned: executions may be lost"
            yield Finding("partitions", "problem", lost, _refilled(schema, start, end))


def _refilled(schema: str, start: str, end: str) -> str:
    return (
        f"restore it, or accept what `cronledger verify --from {start} --to {end}` finds and fill "
        f"the hole, as the owner of the tables: SELECT {internal(schema)}.create_partitions("
        f"'{start}', '{end}'::timestamptz - interval '1 us', 604800)"
    )


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def retention(patient: DoctorContext) -> Iterator[Finding]:
    """Whether what is too old goes."""
    keep = patient.settings.retention
    kept = patient.row("examine_partitions", retention=keep)["kept"]
    if kept:
        remedy = (
            "end what is PENDING, RUNNING or awaits a retry in them (`executions list`), "
            "or set CRONLEDGER_RETENTION to what the replicas have"
        )
        found = f"older than {durations.format(keep)} and still there: {named(kept)}"
        yield Finding("retention", "warning", found, remedy)
    else:
        yield Finding("retention", "ok", f"nothing is older than {durations.format(keep)}")


def runners(patient: DoctorContext) -> Iterator[Finding]:
    """Whether somebody is there, and has something to do."""
    rows = patient.rows("examine_runners")
    alive = [row for row in rows if row["alive"]]
    dead = [f"{row['id']} ({_about(row['seen_ago'])} ago)" for row in rows if not row["alive"]]
    idle = [
        f"{row['id']} ({', '.join(row['queues']) or 'external'})"
        for row in alive
        if not row["has_jobs"]
    ]
    if not any(not row["external"] for row in alive):
        yield Finding("runners", "problem", "no replica is alive", "start some: `cronledger run`")
    if dead:
        remedy = "look at their logs and memory limits; their rows go a day after they were seen"
        yield Finding("runners", "warning", f"left without a word: {named(dead)}", remedy)
    if idle:
        remedy = "give their queues (CRONLEDGER_QUEUES, --queue) the name of one that jobs have"
        found = f"no job is in a queue that they take from: {named(idle)}"
        yield Finding("runners", "warning", found, remedy)
    if alive and not dead and not idle:
        yield Finding("runners", "ok", f"{len(alive)} alive")


def jobs(patient: DoctorContext) -> Iterator[Finding]:
    """Whether every job can run."""
    rows = patient.rows("examine_jobs")
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
            "start a replica with that queue and function (external: its worker), or pause them"
        )
        yield Finding("jobs", "problem", f"no live runner has {named(alone)}", remedy)
    if not rows:
        yield Finding("jobs", "ok", "each can run")


def _needs(row: dict[str, Any]) -> str:
    if row["handler"] == "python":
        return f", function {row['function']}"
    return ", external" if row["handler"] == "external" else ""


def scopes(patient: DoctorContext) -> Iterator[Finding]:
    """Whether every scope provider answers."""
    rows = patient.rows("examine_scope_providers")
    for row in rows:
        if row["reason"] == "provider_failed":
            remedy = "correct what the error names; until then the job keeps the scopes that it has"
        else:
            remedy = (
                f"start a replica that declares {row['job_name']} with its scope provider, or list"
                " its scopes in the job"
            )
        yield Finding("scopes", "problem", f"{row['job_name']}: {row['detail']}", remedy)
    if not rows:
        yield Finding("scopes", "ok", "each scope provider answers")


def queues(patient: DoctorContext) -> Iterator[Finding]:
    """Pauses that were perhaps forgotten."""
    rows = patient.rows("examine_queues")
    for row in rows:
        why = f": {row['paused_reason']}" if row["paused_reason"] else ""
        found = (
            f"{row['name']} is paused for {_about(row['paused_for'])} by {row['paused_by']}{why}"
        )
        remedy = f"cronledger queues resume {row['name']}"
        yield Finding("queues", "warning", found, remedy)
    if not rows:
        yield Finding("queues", "ok", "none is paused for more than a day")


def violations(patient: DoctorContext) -> Iterator[Finding]:
    """Promises that are broken, as far as SQL alone can tell."""
    rows = patient.rows("examine_violations")
    if rows:
        found = named(f"{row['count']} {row['kind']}" for row in rows)
        remedy = "SELECT * FROM …violations, `cronledger verify`; then report it: it is a defect"
        yield Finding("violations", "problem", found, remedy)
    else:
        yield Finding("violations", "ok", "none; `cronledger verify` proves the rest")


def _about(length: timedelta) -> str:
    if abs(length) >= timedelta(days=2):
        return f"{length.days} days"
    return str(timedelta(seconds=round(length.total_seconds())))


CHECKS: tuple[Check, ...] = (
    identity, roles, clock, time_zones, tables, horizon, jit, partitions, retention, runners, jobs,
    scopes, queues, violations,
)  # fmt: skip
