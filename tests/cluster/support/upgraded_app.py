"""The jobs of the upgrade test, for an installed cronledger of any version.

They use the public interface and the standard library only: the older version has an environment of
its own, without the libraries of the tests.
"""

import time

from cronledger import App, Context
from tests.cluster.support.marks import mark

upgraded = App("upgraded")


def _mark_start(ctx: Context) -> None:
    plan_time = ctx.plan_time.isoformat()
    mark("start", ctx.job, ctx.scope_id, ctx.attempt, ctx.execution_id, plan_time)


@upgraded.job("* * * * * *", catch_up="all", grace="1h", overlap="allow")
async def brief(ctx: Context) -> None:
    """Leave a mark outside the database."""
    _mark_start(ctx)


@upgraded.job("* * * * * *", catch_up="all", grace="1h", overlap="allow")
def lasting(ctx: Context) -> None:
    """Leave a mark, and run beyond the next firing."""
    _mark_start(ctx)
    time.sleep(1.5)
