"""Settings of roles that would break a promise if transactions of cronledger did not override them.

They hold for some seconds, for the replicas, the worker and the client alike; the server may crash
meanwhile.
"""

import random
import time
from typing import LiteralString

from tests.chaos.world import CLIENT, ROLE, World, terminate_all

HOSTILE: tuple[tuple[LiteralString, LiteralString], ...] = (
    ("synchronous_commit", "off"),
    ("default_transaction_isolation", "'repeatable read'"),
    ("default_transaction_isolation", "serializable"),
    ("idle_session_timeout", "'2s'"),
    ("statement_timeout", "'300ms'"),
    ("lock_timeout", "'50ms'"),
    ("idle_in_transaction_session_timeout", "'200ms'"),
    ("DateStyle", "German"),
    ("IntervalStyle", "sql_standard"),
    ("TimeZone", "'Asia/Kathmandu'"),
    ("search_path", "pg_temp"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit_above_cost", "0"),
    ("enable_indexscan", "off"),
)
ROLES: tuple[LiteralString, ...] = (ROLE, CLIENT)


def hostile_settings(world: World, draw: random.Random) -> None:
    """Three settings are hostile. Where a COMMIT need not be durable, the server crashes."""
    chosen = dict(draw.sample(HOSTILE, 3))
    for name, value in chosen.items():
        for role in ROLES:
            world.sql(f"ALTER ROLE {role} SET {name} = {value}")
    terminate_all(world)
    try:
        time.sleep(draw.uniform(3, 9))
        if "synchronous_commit" in chosen or draw.random() < 0.3:
            world.server.stop("kill")
            world.server.start()
    finally:
        for role in ROLES:
            world.sql(f"ALTER ROLE {role} RESET ALL")
        terminate_all(world)
    for name, value in chosen.items():
        world.happened[f"  setting: {name} = {value}"] += 1
