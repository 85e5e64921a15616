"""Headlines, every hour; a printed edition in the morning of Berlin."""

from typing import Any

from cronledger import App, Context, Retry

app = App("kiosk.news")
printed: list[str] = []
wire: list[str] = []


@app.job("@hourly", max_attempts=3, retry_backoff=["5m"])
async def headlines(ctx: Context) -> dict[str, Any]:
    """Take what the wire has; without any news, look again later."""
    if not wire:
        raise Retry(after="10m")
    taken, wire[:] = list(wire), []
    return {"headlines": taken}


@app.job("30 6 * * *", timezone="Europe/Berlin")
def morning_edition(ctx: Context) -> None:
    """Print it, once a day."""
    printed.append(ctx.plan_time.isoformat())
