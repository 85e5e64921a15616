"""Settings of connections, sessions and transactions.

They override those of the server, the database and the role, because the promises do not depend on
them. Behind a pooler in transaction mode only settings that are local to a transaction hold; the
pooler keeps datestyle, timezone and client_encoding for each client.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

HUNG_SECONDS = 90.0
"""Longer than any step of a replica takes on a healthy database, including the wait for a scope
provider."""

SILENT_CLIENT_SECONDS = 30.0
"""The server ends the transaction of a client that is silent for this long in a step, and releases
its locks. A step computes for a much shorter time: planning one claim takes a second."""

CONNECTION: Mapping[str, str] = {
    # A network partition is noticed in seconds, not in the two hours of the kernel's defaults.
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}
"""Parameters of each connection. The DSN may override them."""

# psycopg parses dates by the settings that the server reports for the session.
DATES: Mapping[str, str] = {"datestyle": "ISO", "timezone": "UTC"}

VALUES: Mapping[str, str] = {
    "intervalstyle": "postgres",
    "array_nulls": "on",  # otherwise the NULL of an array literal is the text NULL
    "search_path": "pg_catalog, pg_temp",
}
"""Settings that decide the meaning of values and names."""

# Otherwise the server would detect a lost host after two hours, and keep its locks until then.
SERVER_KEEPALIVES: Mapping[str, str] = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

SESSION: Mapping[str, str] = {
    **SERVER_KEEPALIVES,
    **DATES,
    **VALUES,
    "idle_session_timeout": "0",
    "statement_timeout": f"{HUNG_SECONDS:.0f}s",  # of what runs outside of a step's transaction
    "default_transaction_isolation": "read committed",
    "exit_on_error": "off",
    "extra_float_digits": "1",
}
"""For a connection that only cronledger uses, and that waits for work."""

ENABLE_ALL_PLANS = """(
SELECT count(set_config(s.name, 'on', false)) FROM pg_settings s
WHERE starts_with(s.name, 'enable_') AND s.setting = 'off' AND s.boot_val = 'on')
"""
"""An expression: the plans of steps are pinned by costs, which a disabled kind of plan ignores."""

# Statements are planned once per connection, because planning for all partitions costs more than
# most of them. Sequential scans have a high price, because a partition looks empty to the planner
# until it is analyzed (enable_seqscan = off would hide all other costs where a small table without
# an index is read). The statements of a step end long before its statement_timeout; a limit of the
# role could end them at any time.
STEP: Mapping[str, str] = {
    **VALUES,
    "jit": "off",
    "seq_page_cost": "1000",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": f"{HUNG_SECONDS:.0f}s",
}
"""For the transaction of a step."""

COMMAND: Mapping[str, str] = {
    **SERVER_KEEPALIVES,
    **DATES,
    **VALUES,
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "jit": "off",
    "statement_timeout": "0",
    "client_min_messages": "notice",
}
"""For the transaction of a command, which has no time limit."""

# The tables of the ledger set this themselves; this is for everything else that a command writes.
SET_DURABLE = """
pg_catalog.set_config('synchronous_commit', CASE pg_catalog.current_setting('synchronous_commit')
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)
"""


def set_expressions(settings: Mapping[str, str], *, local: bool) -> str:
    """Return the SQL expressions that set all of them. `local`: for the transaction only."""
    return ", ".join(
        # Qualified, because the search_path may begin with a schema that has such a function.
        f"pg_catalog.set_config('{name}', '{value}', {str(local).lower()})"
        for name, value in settings.items()
    )


def set_parameters(names: Iterable[str]) -> str:
    """Return the SQL expressions that set these for the transaction, with a parameter for each."""
    return ", ".join(f"pg_catalog.set_config('{name}', %s, true)" for name in names)


def limit_unread(patience: timedelta) -> bytes:
    """Return a statement after which the server ends a session that does not read what it is sent.

    For LISTEN. A process that is stopped, or whose loop is blocked, reads no notifications. Once
    they fill the socket, the server's backend hangs in its write. The notification queue and every
    DROP DATABASE on that server would hang with it.
    """
    milliseconds = round(patience.total_seconds() * 1000)
    return f"SELECT pg_catalog.set_config('tcp_user_timeout', '{milliseconds}', false)".encode()


SET_VALUES = set_expressions(VALUES, local=True)
SET_STEP = set_expressions(STEP, local=True)
SET_COMMAND = set_expressions(COMMAND, local=True)
