"""A ledger that has something to show on every page."""

from datetime import datetime, timedelta

from psycopg.types.json import Jsonb

from tests.db.support import rows
from tests.db.support.rows import Db

JOBS = (
    "archive-orders", "expire-carts", "fx-rates", "health-report", "mail-digest", "nightly-backup",
    "rebuild-search", "refresh-prices", "send-invoices", "sync-crm",
)  # fmt: skip
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
INVOICES = {
    "type": "object", "required": ["customer"], "properties": {
        "customer": {"type": "string", "description": "The customer's short name."},
        "month": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
                  "description": "The first day of the month; by default the last month."},
        "limit": {"type": "integer", "minimum": 1, "default": 500},
        "delivery": {"enum": ["mail", "portal", "both"], "default": "mail"},
        "dry_run": {"type": "boolean", "default": False},
        "recipients": {"type": "array", "items": {"type": "string"}, "default": []},
        "api_key": {"type": "string"},
    },
}  # fmt: skip
ERROR = "exited with status 75: the API returned 503 Service Unavailable"


def open_shop(db: Db) -> int:
    """Fill the ledger with a day of ten jobs, and return the id of an execution that failed."""
    at = rows.now(db).replace(microsecond=0)
    for number in (1, 2, 3):
        rows.runner(
            db, f"web{number}.shop.example", host=f"web{number}.shop.example", version="0.1.0",
            running=number - 1, queues=["default", "reports"][:number],
            heartbeat_at=at - timedelta(seconds=2 * number), stale_after=at + timedelta(days=1),
        )  # fmt: skip
    rows.runner(db, "web4.shop.example", stale_after=at - timedelta(minutes=2))
    for number, name in enumerate(JOBS):
        schema = Jsonb(INVOICES) if name == "send-invoices" else None
        rows.job(
            db, name, timezone=ZONES[number % 4], schedule="*/15 * * * *",
            queue="reports" if number % 3 == 0 else "default", description=f"The job {name}.",
            payload_schema=schema,
        )  # fmt: skip
        for past in range(1, 60):
            failed = (name == "sync-crm" and past < 5) or (number * 31 + past * 17) % 41 == 0
            plan_time = at - timedelta(minutes=15 * past + number)
            runner = f"web{1 + past % 3}.shop.example"
            if failed:
                rows.execution(
                    db, "FAILED", name, plan_time=plan_time, runner_id=runner, error_msg=ERROR,
                    error_code="exit_code",
                )  # fmt: skip
            else:
                ran = timedelta(seconds=4 + number * number * 7 + past * 13 % 40)
                rows.execution(
                    db, "SUCCESS", name, plan_time=plan_time, runner_id=runner,
                    finished_at=min(plan_time + ran, at), duration_ms=ran.total_seconds() * 1000,
                )  # fmt: skip
    rows.execution(
        db, "RUNNING", "nightly-backup", plan_time=at - timedelta(minutes=4),
        runner_id="web2.shop.example", stale_after=at + timedelta(hours=1),
    )  # fmt: skip
    rows.execution(db, "PENDING", "fx-rates", plan_time=at - timedelta(minutes=6))
    for hour in range(5):
        instant = at - timedelta(hours=hour, minutes=7, seconds=30)
        rows.insert(
            db, "skips", job_name="rebuild-search", scope_kind="global", scope_id="global",
            from_plan_time=instant, through_plan_time=instant, count=1, reason="overlap",
            revision=1, blocked_by=1,
        )  # fmt: skip
    db.execute(
        "SELECT cronledger.pause('mail-digest', reason => 'the mail server moves on Monday',"
        " requested_by => 'alice@ops')"
    )
    for number, name in enumerate(JOBS):
        due = at + timedelta(minutes=5 * number + 2)
        db.execute(
            "UPDATE cronledger.schedules SET parked = NULL, woken = false, next_due_at = %s,"
            " next_plan_time = %s WHERE job_name = %s AND job_name <> 'mail-digest'",
            [due, due, name],
        )  # fmt: skip
    _verify(db, at)
    found: int = rows.execution(
        db, "FAILED", "send-invoices", plan_time=at - timedelta(minutes=1), attempt=2,
        started_at=at - timedelta(seconds=30), finished_at=at - timedelta(seconds=5),
        duration_ms=25_000, error_msg=ERROR, error_code="exit_code", output="sending 12 invoices\n",
        payload=Jsonb({"customer": "acme", "api_key": "not-shown"}), runner_id="web1.shop.example",
        attempts=Jsonb([{
            "attempt": 1, "runner_id": "web3.shop.example", "lease_token": "not-shown",
            "started_at": (at - timedelta(seconds=58)).isoformat(),
            "last_seen": (at - timedelta(seconds=40)).isoformat(), "error_code": "runner_crashed",
        }]),
    )["id"]  # fmt: skip
    return found


def _verify(db: Db, at: datetime) -> None:
    """Record runs of verify: nightly ones, one of a job that found something, and a killed one."""
    names = ("schedules", "plan_times", "executions", "skips", "behind", "violations", "accepted")
    found = Jsonb({"missing": 2, "untrue_skip": 1})
    for days, job, counts, kinds in (
        (3, None, (10, 2880, 2816, 64, 0, 0, 0), Jsonb({})),
        (2, "sync-crm", (1, 96, 94, 0, 0, 3, 1), found),
        (1, None, (10, 2880, 2804, 76, 0, 0, 1), Jsonb({})),
    ):
        began = at - timedelta(days=days, minutes=2)
        rows.insert(
            db, "verification_runs", job_name=job, requested_by="nightly@ops", version="0.1.0",
            started_at=began, finished_at=began + timedelta(seconds=3 + days), outcome="finished",
            checked_after=began - timedelta(days=3), checked_through=began, kinds=kinds,
            **dict(zip(names, counts, strict=True)),
        )  # fmt: skip
    rows.insert(
        db, "verification_runs", requested_by="alice@ops", version="0.1.0",
        started_at=at - timedelta(hours=3), from_plan_time=at - timedelta(hours=27),
    )  # fmt: skip
