"""Check-ins of Sentry's monitors, where the program has initialised `sentry_sdk`."""

import hashlib
import math
import re
import sys
from typing import Any

from cronledger.logs.loggers import get_logger
from cronledger.rules.model import GLOBAL, Job, ScopeKey

log = get_logger(__name__)

LONGEST_SLUG = 50
HASH_LENGTH = 8
_SLUG = re.compile(rf"(?![0-9]+$)[a-z0-9_-]{{1,{LONGEST_SLUG}}}")
"""Sentry refuses a number."""
_ALIASES = {"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}
_EVERY = re.compile(r"@every (\d+)([mhdw])", re.IGNORECASE)
_UNITS = {"m": "minute", "h": "hour", "d": "day", "w": "week"}


class SentryCheckIns:
    """Sends one check-in at the first start of a scheduled execution, and one at its end.

    Its methods may be called only while it is `active`. The SDK sends in a thread of its own.
    """

    def __init__(self) -> None:
        self._unsupported: set[str] = set()

    @property
    def active(self) -> bool:
        """Return whether the program has initialised `sentry_sdk`."""
        # Not imported here: without the program's own initialisation there is nowhere to send to.
        # The function is missing in versions before 2.0, and while another thread imports the SDK.
        initialized = getattr(sys.modules.get("sentry_sdk"), "is_initialized", None)
        return initialized is not None and bool(initialized())

    def started(self, job: Job, scope: ScopeKey, check_in: str) -> None:
        """Send that an execution of the schedule has started."""
        self._capture(job, scope, check_in, "in_progress", None)

    def ended(self, job: Job, scope: ScopeKey, check_in: str, *, ok: bool, seconds: float) -> None:
        """Send that an execution of the schedule has ended."""
        self._capture(job, scope, check_in, "ok" if ok else "error", seconds)

    def _capture(
        self, job: Job, scope: ScopeKey, check_in: str, status: str, seconds: float | None
    ) -> None:
        config = monitor(job)
        if config is None:
            if job.name not in self._unsupported:
                self._unsupported.add(job.name)
                log.warning("sentry_monitor_unsupported", job=job.name, schedule=job.schedule)
            return
        from sentry_sdk.crons import capture_checkin  # noqa: PLC0415 - it is loaded

        try:
            capture_checkin(
                monitor_slug=slug(job, scope), check_in_id=check_in, status=status,
                duration=seconds, monitor_config=config,
            )  # fmt: skip
        except Exception:  # code of others must not end the write of an outcome
            log.exception("sentry_check_in_failed", job=job.name)


def slug(job: Job, scope: ScopeKey) -> str:
    """Return the slug of the monitor of a (job, scope): lower-case letters, digits, - and _.

    It ends with a hash unless it is the name of a job without scopes, so that no two are equal.
    """
    scoped = scope.scope_kind != GLOBAL
    name = f"{job.name}-{scope.scope_id}" if scoped else job.name
    if not scoped and _SLUG.fullmatch(name):
        return name
    whole = "\0".join((job.name, scope.scope_kind, scope.scope_id))
    end = "-" + hashlib.sha256(whole.encode()).hexdigest()[:HASH_LENGTH]
    kept = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[: LONGEST_SLUG - len(end)]
    return (kept.rstrip("-") or "job") + end


def monitor(job: Job) -> Any:
    """Return the configuration of the monitor of a job; None: Sentry has no such schedule.

    Sentry knows crontabs of five fields and intervals of whole minutes, and limits of whole
    minutes, which are rounded up. The margin counts from the plan_time. With both days restricted,
    Sentry takes either of them.
    """
    text = " ".join((job.schedule or "").split())
    schedule = _schedule(text)
    if schedule is None or (not job.day_or and _has_both_days(text)):
        return None
    config: dict[str, Any] = {
        "schedule": schedule,
        "timezone": job.timezone,
        "checkin_margin": _minutes((job.schedule_delay + job.jitter + job.grace).total_seconds()),
    }
    if job.run_timeout is not None:
        config["max_runtime"] = _minutes(job.run_timeout.total_seconds())
    return config


def _schedule(text: str) -> dict[str, Any] | None:
    if found := _EVERY.fullmatch(text):
        return {"type": "interval", "value": int(found[1]), "unit": _UNITS[found[2].lower()]}
    fields = text.split(" ")
    # H, L, W and # are not part of the crontabs that Sentry reads.
    if text.lower() in _ALIASES or (
        len(fields) == 5 and not re.search(r"[LW#?]|H(?!U)", text.upper().replace("THU", ""))
    ):
        return {"type": "crontab", "value": text}
    return None


def _has_both_days(text: str) -> bool:
    fields = text.split(" ")
    return len(fields) == 5 and not fields[2].startswith("*") and not fields[4].startswith("*")


def _minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60))
