"""The operator functions, and the record of their refusals in the audit trail.

A function that refuses raises, and its transaction is rolled back. So its caller records the
refusal afterwards, in a transaction of its own.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

OPERATOR_FUNCTIONS = frozenset(
    {
        "accept_database", "accept_violation", "adopt", "backfill", "cancel", "cancel_many",
        "change_pause", "create_report_token", "end_pause", "limit_queue", "pause",
        "pause_all", "pause_channel", "pause_queue", "plan_pause", "redact", "redact_revisions",
        "refuse_database", "rename_source", "resume", "resume_all", "resume_channel",
        "resume_queue", "retire", "retire_host", "retry", "retry_delivery", "retry_many",
        "revoke_report_token", "set_calendar",
        "set_retention", "skip", "test_channel", "trigger", "unskip", "withdraw_acceptance",
    }
)  # fmt: skip
"""The SQL functions that record each call. `operator_verbs()` lists the same."""
RECORD = "call_record_refusal"
"""The statement that records a refusal."""


def refusal(
    function: str, arguments: Mapping[str, object], error: str, requested_by: str | None = None
) -> dict[str, Any]:
    """Return the parameters of `RECORD`. Payloads and lists are left out of `arguments`.

    `error`: the message of the refusal. `requested_by` None: the role of the session.
    """
    plain = {
        name: _plain(value) for name, value in arguments.items()
        if name != "payload" and isinstance(value, str | int | float | datetime | timedelta)
    }  # fmt: skip
    return {
        "verb": function, "arguments": json.dumps(plain), "error": error,
        "requested_by": requested_by,
    }  # fmt: skip


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta) else value
