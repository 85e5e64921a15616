"""Random job sets: all policies, in all the combinations that may be declared."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from cronledger.rules.model import Job
from cronledger.rules.validation import problems

FUNCTION = "simulation:work"
CROWD, CROWDED = "crowd", ("a", "b", "c")
AT_BOOT = "at_boot"
QUEUES = ("default", "narrow")
NARROW = 2
SCOPES = ("a", "b", "c", "d")

# Instants shortly before something of a calendar: where clocks go forward or back in one of the
# zones, a month's end, a partition's end, and one where nothing is.
STARTS = {
    "new york springs": datetime(2026, 3, 8, 6, 59, 20, tzinfo=UTC),
    "berlin springs": datetime(2026, 3, 29, 0, 59, 25, tzinfo=UTC),
    "lord howe falls": datetime(2026, 4, 4, 14, 59, 30, tzinfo=UTC),
    "month ends": datetime(2026, 3, 31, 23, 59, 15, tzinfo=UTC),
    "partition ends": datetime(2026, 3, 15, 23, 59, 20, tzinfo=UTC),
    "nothing": datetime(2026, 3, 18, 12, 0, 7, tzinfo=UTC),
}
ZONES = ("UTC", "UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu")
SCHEDULES = (
    "@every 3s", "@every 5s", "@every 7s", "@every 20s", "*/4 * * * * *", "*/10 * * * * *",
    "* * * * *", "5,25,26,27 * * * * *", "0 3 * * *", "*/30 * * * * *", "0,30 * * * *",
)  # fmt: skip


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def make_jobs(random: Random) -> list[dict[str, Any]]:
    """Columns of two to five jobs that may be declared."""
    jobs: list[dict[str, Any]] = []
    while len(jobs) < random.choice((2, 3, 3, 4, 5)):
        columns = make_job(random, f"j{len(jobs)}")
        if is_sound(columns):
            jobs.append(columns)
    return jobs


def make_external(random: Random, jobs: list[dict[str, Any]]) -> None:
    """Some of them, at least one, are for workers in other languages."""
    chosen = [columns for columns in jobs if random.random() < 0.5] or [random.choice(jobs)]
    for columns in chosen:
        columns.update(handler="external", target={})


FILTERS: dict[str, tuple[dict[str, list[str]], ...]] = {
    "python": (
        {"never_retry_on": ["ValueError"]}, {"retry_on": ["ValueError"]},
        {"retry_on": ["retry_requested", "timeout"]},
    ),
    "external": (
        {"never_retry_on": ["work"]}, {"retry_on": ["work"]}, {"retry_on": ["retry_requested"]},
    ),
}  # fmt: skip
"""Filters that the failures of handlers and of workers match, or do not match."""


def make_filtered(random: Random, jobs: list[dict[str, Any]]) -> None:
    """Few of them have retry filters."""
    for columns in jobs:
        if random.random() < 0.15:
            columns.update(random.choice(FILTERS[columns["handler"]]))


DEADLINES: dict[str, tuple[str | None, ...]] = {
    "start_by": ("1s", "4s", "20s", "03:00", None),
    "finish_by": ("2s", "6s", "03:00:10", None),
    "expect_duration": ("1s", "3s", None),
}


def make_deadlines(random: Random, jobs: list[dict[str, Any]]) -> None:
    """Some of them have deadlines, of which some are missed."""
    for columns in jobs:
        if random.random() < 0.4:
            for name, texts in DEADLINES.items():
                columns[name] = random.choice(texts)


def make_windows(random: Random, jobs: list[dict[str, Any]]) -> None:
    """Most of those that may have windows have them."""
    for columns in jobs:
        if columns["overlap"] != "allow" and random.random() < 0.6:
            columns["windows"] = True


def make_gated(random: Random, jobs: list[dict[str, Any]]) -> None:
    """A source, and one that requires it; and some of the others require earlier ones.

    Only a job of the global scope, and one with a schedule, can.
    """
    able = [x for x in jobs if x["schedule"] is not None and "scope_kind" not in x]
    for name in ("source", "target"):
        columns: dict[str, Any] = {
            "name": name, "handler": "python", "target": {"python": FUNCTION},
            "schedule": "*/4 * * * * *", "overlap": random.choice(("skip", "wait", "replace")),
            "catch_up": random.choice(("latest", "all")), "grace": s(15),
            "catch_up_window": s(60), "stale_timeout": s(4), "allow_stale_reentry": True,
            "max_attempts": 3, "retry_backoff": [s(0.5)], "queue": "default",
        }  # fmt: skip
        if columns["catch_up"] == "all":
            columns |= {"overlap": "wait", "catch_up_limit": 3}
        jobs.append(columns)
    jobs[-1]["requires"] = [{"job": "source", "scope": "same"}]
    for place, columns in enumerate(able[1:], 1):
        if random.random() < 0.7:
            columns["requires"] = [{"job": random.choice(able[:place])["name"], "scope": "same"}]
    for columns in jobs:
        if "requires" in columns and random.random() < 0.6:
            columns["wait_at_most"] = s(random.choice((1, 4, 20)))


def make_hosts(random: Random, jobs: list[dict[str, Any]]) -> None:
    """One that runs on each host, one after it, one of only some replicas, and one at boot."""
    chosen: dict[str, dict[str, Any]] = {
        "everywhere": {"every": ["fleet=all"]}, "somewhere": {"on": ["part=odd"]},
        AT_BOOT: {"every": ["fleet=all"], "schedule": "@reboot"},
        "behind": {
            "every": ["fleet=all"], "requires": [{"job": "everywhere", "scope": "same"}],
            "wait_at_most": s(random.choice((1, 4, 20))),
        },
    }  # fmt: skip
    for name, differs in chosen.items():
        jobs.append({
            "name": name, "handler": "python", "target": {"python": FUNCTION},
            "schedule": random.choice(("@every 5s", "*/10 * * * * *")),
            "overlap": random.choice(("skip", "wait", "replace")),
            "catch_up": random.choice(("skip", "latest")), "grace": s(random.choice((1, 2, 8))),
            "catch_up_window": s(60), "stale_timeout": s(4), "allow_stale_reentry": True,
            "max_attempts": 3, "retry_backoff": [s(0.5)], "queue": "default", **differs,
        })  # fmt: skip


def make_provided(random: Random, jobs: list[dict[str, Any]]) -> None:
    """Some of them, at least one, have a scope provider."""
    chosen = [columns for columns in jobs if random.random() < 0.3] or [random.choice(jobs)]
    for columns in chosen:
        columns.pop("scopes", None)
        columns["scope_kind"] = "shard"


def is_provided(columns: dict[str, Any]) -> bool:
    return "scope_kind" in columns and "scopes" not in columns


def is_sound(columns: dict[str, Any]) -> bool:
    try:
        job = Job.model_validate(columns)
    except ValueError:
        return False
    found = problems(job, has_provider=is_provided(columns))
    return not any(not problem.warning for problem in found)


def make_job(random: Random, name: str) -> dict[str, Any]:
    scoped = random.random() < 0.35
    reentrant = random.random() < 0.6
    columns: dict[str, Any] = {
        "name": name,
        "handler": "python",
        "target": {"python": FUNCTION},
        "schedule": None if random.random() < 0.12 else random.choice(SCHEDULES),
        "timezone": random.choice(ZONES),
        "overlap": random.choice(("skip", "wait", "wait", "allow", "replace")),
        "catch_up": random.choice(("skip", "latest", "latest", "all")),
        "grace": random.choice((s(0), s(2), s(15), s(60))),
        "catch_up_window": random.choice((s(10), s(60), s(3600))),
        "stale_timeout": random.choice((s(3), s(3), s(4), s(6))),
        "allow_stale_reentry": reentrant,
        "max_attempts": random.choice((1, 1, 2, 3)),
        "retry_backoff": random.choice(([s(0.5)], [s(1), s(3)], [s(0)])),
        "retry_jitter": random.choice((0.0, 0.5)),
        "run_timeout": random.choice((s(3600), s(3600), s(4))),
        "queue": random.choice(QUEUES),
        "payload": {"seen": 1} if random.random() < 0.3 else None,
    }
    if columns["catch_up"] == "all":
        columns["catch_up_limit"] = random.choice((2, 5))
    if random.random() < 0.3:
        columns["max_running"] = random.choice((1, 2))
    if random.random() < 0.2:
        columns["schedule_delay"] = s(random.choice((0.5, 1.5)))
    if random.random() < 0.2:
        columns["jitter"] = s(random.choice((0.5, 1.0)))
    if random.random() < 0.3:
        columns["dst_gap"], columns["dst_fold"] = random.choice(
            (("skip", "first"), ("shift", "both"), ("skip", "both"))
        )
    if scoped:
        columns["scope_kind"] = "shard"
        columns["scopes"] = ["a", "b", "c"][: random.choice((1, 2, 3))]
    return columns


def make_crowd(random: Random, jobs: list[dict[str, Any]]) -> None:
    """One that is due each second, and that others trigger then."""
    jobs.append(
        {
            "name": CROWD,
            "handler": "python",
            "target": {"python": FUNCTION},
            "schedule": "* * * * * *",
            "overlap": random.choice(("skip", "wait")),
            "catch_up": "latest",
            "grace": s(15),
            "catch_up_window": s(60),
            "stale_timeout": s(6),
            "allow_stale_reentry": True,
            "max_attempts": 1,
            "retry_backoff": [s(0.5)],
            "queue": "default",
            "scope_kind": "shard",
            "scopes": list(CROWDED),
        }
    )


def make_edit(random: Random, columns: dict[str, Any]) -> dict[str, Any]:
    """What an edit of this job changes. Limits are not lowered, and overlap does not become or
    cease to be allow: what is RUNNING then would be judged by a rule it did not start under."""
    schedule = random.choice(SCHEDULES)
    choices: list[dict[str, Any]] = [
        {"schedule": schedule if columns["name"] != AT_BOOT else columns["schedule"]},
        {"timezone": random.choice(ZONES)},
        {"payload": {"seen": random.randrange(9)}},
        {"max_attempts": random.choice((1, 2, 4))},
        {"grace": random.choice((s(0), s(5), s(60)))},
        {"stale_timeout": random.choice((s(3), s(6)))},
        {"queue": random.choice(QUEUES)},
        {"catch_up": random.choice(("skip", "latest"))},
        {"schedule_delay": random.choice((s(0), s(1)))},
    ]
    if columns["overlap"] in ("wait", "replace", "skip"):
        choices.append({"overlap": random.choice(("skip", "wait", "replace"))})
    if "windows" in columns:
        choices.append({"windows": random.random() < 0.7})
    if "calendar" in columns:
        choices.append({"on_excluded": random.choice(("skip", "next", "previous"))})
    if "scopes" in columns:
        scopes = [x for x in SCOPES if random.random() < 0.6] or ["a"]
        choices.append({"scopes": scopes})
    edit = random.choice(choices)
    return edit if is_sound({**columns, **edit}) else {"payload": {"seen": 0}}
