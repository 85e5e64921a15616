"""The texts of alerts for people."""

from collections.abc import Mapping
from typing import Any

MOST_SHOWN = 20
"""Alerts that a text describes. The others are counted."""
TAIL = 2_000
"""Characters of an output or error that a text contains."""
Message = Mapping[str, Any]
"""The message of a delivery: `channel`, `ledger` and `alerts`."""

STATES = {
    "failed": ("failed", "recovered"),
    "recovered": ("recovered", "recovered"),
    "overdue": ("overdue", "no longer overdue"),
    "late": ("started late", "started in time again"),
    "skipped": ("skipped a firing", "ran again"),
    "deadline": ("missed a deadline", "met its deadline"),
    "violation": ("violations", "no more violations"),
    "runner_lost": ("lost", "no longer lost"),
    "runner_failing": ("failing", "no longer failing"),
}
"""What an alert states of each event when its state is opened, and when it is closed."""


def subject(message: Message) -> str:
    """Return one line for all alerts of a message."""
    alerts = message["alerts"]
    if len(alerts) != 1:
        names = sorted({_about(alert) for alert in alerts})
        more = ", …" if len(names) > 3 else ""
        return f"cronledger: {len(alerts)} alerts about {', '.join(names[:3])}{more}"
    (alert,) = alerts
    return f"Cron <{_about(alert)}> {_state(alert)}"


def text(message: Message) -> str:
    """Return the alerts of a message, each with what is known of its cause."""
    alerts = message["alerts"]
    parts = [_described(alert) for alert in alerts[:MOST_SHOWN]]
    if len(alerts) > MOST_SHOWN:
        parts.append(f"{len(alerts) - MOST_SHOWN} more alerts are not shown.")
    return "\n\n".join(parts) + "\n"


def _about(alert: Mapping[str, Any]) -> str:
    name = str(alert["job"] or alert["runner"] or "ledger")
    scope = alert["scope"]
    return name if not scope or scope == "global" else f"{name} {scope}"


def _state(alert: Mapping[str, Any]) -> str:
    event = str(alert["event"])
    opened, closed = STATES.get(event, (event, f"no longer {event}"))
    if alert["kind"] == "reminder":
        return f"{opened}, since {alert['since']}"
    return closed if alert["kind"] == "closed" else opened


def _described(alert: Mapping[str, Any]) -> str:
    details = alert.get("details") or {}
    lines = [f"{_about(alert)}: {_state(alert)}", str(alert["summary"])]
    known = {
        "plan_time": alert["plan_time"],
        "execution": alert["execution_id"],
        "owner": alert["owner"],
        "runbook": alert.get("runbook"),
        "error": details.get("error_code"),
    }
    lines += [f"{name}: {value}" for name, value in known.items() if value is not None]
    for name in ("error_msg", "output"):
        if value := details.get(name):
            lines += ["", str(value)[-TAIL:]]
    return "\n".join(lines)
