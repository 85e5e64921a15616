"""A ledger that has something to show on every page."""

from datetime import datetime, timedelta

from psycopg.types.json import Jsonb

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.picture_ledger import ERROR, NOW, open_picture_ledger

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


def open_shop(db: Db, url: str) -> int:
    """Fill the ledger of the pictures, and return the id of an execution that failed."""
    open_picture_ledger(db, url)
    at = NOW
    rows.runner(db, "web4.shop.example", stale_after=at - timedelta(minutes=2))
    db.execute(
        "UPDATE cronledger.jobs SET payload_schema = %s WHERE name = 'send-invoices'",
        [Jsonb(INVOICES)],
    )
    rows.execution(db, "PENDING", "fx-rates", plan_time=at - timedelta(minutes=6))
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
    """Record runs of verify: one of a job that found something, and a killed one."""
    began = at - timedelta(days=2, minutes=2)
    rows.verification(
        db, job_name="sync-crm", requested_by="nightly@ops", started_at=began,
        finished_at=began + timedelta(seconds=5), checked_through=began,
        checked_after=began - timedelta(days=3), schedules=1, plan_times=96, executions=94,
        violations=3, accepted=1, kinds=Jsonb({"missing": 2, "untrue_skip": 1}),
    )  # fmt: skip
    rows.insert(
        db, "verification_runs", requested_by="alice@ops", version="0.1.0",
        started_at=at - timedelta(hours=3), from_plan_time=at - timedelta(hours=27),
    )  # fmt: skip
