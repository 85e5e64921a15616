"""The weather of each town, every ten minutes."""

from cronledger import App, Context

app = App("kiosk.weather")
measured: list[str] = []


@app.job("*/10 * * * *", scope_kind="town", scopes=["bergen", "lagos"])
def measure(ctx: Context) -> str:
    """Measure one town."""
    measured.append(ctx.scope_id)
    return ctx.scope_id
