"""The ledger of the pictures in the documentation: a day of a shop, always the same.

The clocks of Berlin go back on this day, and it is the evening there.
"""

from contextlib import closing
from datetime import UTC, datetime, timedelta

from cronledger.audit.walk import Definition, walk
from cronledger.ledger.time_travel import Travel
from cronledger.rules.model import ScopeKey
from tests.db.support import rows
from tests.db.support.rows import Db

NOW = datetime(2026, 10, 25, 17, 40, tzinfo=UTC)
DAY = "sync-crm"
RUNNERS = ("web1.shop.example", "web2.shop.example", "web3.shop.example")
JOBS = (  # name, schedule, zone, queue, seconds, number of which plan_times fail
    ("archive-orders", "10 2 * * *", "Europe/Berlin", "reports", 5400, ()),
    ("expire-carts", "*/5 * * * *", "UTC", "default", 70, ()),
    ("fx-rates", "*/15 8-18 * * *", "America/New_York", "default", 20, (9,)),
    ("health-report", "0 * * * *", "Asia/Kolkata", "reports", 420, ()),
    ("nightly-backup", "0 1 * * *", "UTC", "reports", 7200, ()),
    ("rebuild-search", "*/30 * * * *", "Europe/Berlin", "default", 900, (18,)),
    ("refresh-prices", "*/10 * * * *", "Europe/Berlin", "default", 300, ()),
    ("send-invoices", "0 7-19/2 * * *", "Europe/Berlin", "default", 600, (5,)),
    (DAY, "*/15 * * * *", "Europe/Berlin", "default", 150, (13, 14, 60)),
    ("thumbnails", "*/2 * * * *", "UTC", "default", 45, ()),
)
LATE = (30, 31)
OVERLAPPED = (37, 38, 39)
MISSED = (52, 53)
STOP = datetime(2026, 10, 25, 10, 58, tzinfo=UTC)
RESTART = datetime(2026, 10, 25, 11, 21, tzinfo=UTC)
"""No runner checked in between these."""
ERROR = "exited with status 75: the API returned 503 Service Unavailable"


def open_picture_ledger(db: Db, url: str) -> None:
    """Fill the ledger, and set its clock."""
    with closing(Travel(url)) as clock:
        clock.travel(to=NOW)
    began = NOW - timedelta(days=2)
    rows.partitions(db, began, NOW)
    for number, name in enumerate(RUNNERS):
        rows.runner(
            db, name, host=name, version="0.1.0", slots=4, queues=["default", "reports"],
            running=int(number < 2), started_at=RESTART,
            heartbeat_at=NOW - timedelta(seconds=number + 1), stale_after=NOW + timedelta(hours=1),
        )  # fmt: skip
    rows.runner(
        db, "web0.shop.example", state="stopped", queues=["default", "reports"], started_at=began,
        heartbeat_at=STOP, stale_after=STOP,
    )  # fmt: skip
    for name, schedule, zone, queue, seconds, failing in JOBS:
        rows.job(db, name, schedule=schedule, timezone=zone, queue=queue)
        db.execute(
            "UPDATE cronledger.job_revisions SET effective_from = %s WHERE job_name = %s",
            [began, name],
        )
        definition, key = Definition(schedule, timezone=zone), ScopeKey(name, "global", "global")
        plan = list(walk(definition, key, NOW - timedelta(hours=19, minutes=41), NOW))
        following = next(iter(walk(definition, key, NOW, NOW + timedelta(days=2))))
        rows.schedule(
            db, name, created_at=began, planned_through=NOW, next_due_at=following,
            next_plan_time=following,
        )  # fmt: skip
        for number, at in enumerate(plan):
            if name == DAY and number in (*OVERLAPPED, *MISSED):
                continue
            started = at + timedelta(minutes=3 if name == DAY and number in LATE else 0)
            ended = started + timedelta(seconds=seconds)
            runner = RUNNERS[number % 3]
            if ended > NOW:
                rows.execution(
                    db, "RUNNING", name, plan_time=at, runner_id=runner,
                    queue=queue, stale_after=NOW + timedelta(seconds=50),
                )  # fmt: skip
                continue
            failed = {"error_code": "exit_code", "error_msg": ERROR} if number in failing else {}
            rows.execution(
                db, "FAILED" if failed else "SUCCESS", name, plan_time=at, queue=queue,
                started_at=started, finished_at=ended, duration_ms=seconds * 1000,
                runner_id=runner, **failed,
            )  # fmt: skip
        if name == DAY:
            for reason, numbers in (("overlap", OVERLAPPED), ("missed", MISSED)):
                rows.skip(
                    db, plan[numbers[0]], plan[numbers[-1]], len(numbers), reason, name,
                    blocked_by=1 if reason == "overlap" else None,
                )  # fmt: skip
    db.execute(
        "SELECT cronledger.pause('archive-orders', reason => 'the archive moves on Monday',"
        " requested_by => 'alice')"
    )
