"""The check of alerts and their deliveries."""

from collections.abc import Iterator

from cronledger.explain.findings import DoctorContext, Finding, named, otherwise_ok


@otherwise_ok("every alert has a delivery, and none failed in the last day")
def alerts(context: DoctorContext) -> Iterator[Finding]:
    """Check that alerts are delivered, and that each channel exists that a job names."""
    row = context.row("examine_alerts")
    if row["missing"]:
        found = f"channels that do not exist: {named(row['missing'])}"
        yield Finding("alerts", "problem", found, "declare the channel, or correct notify")
    if row["undelivered"]:
        found = f"{row['undelivered']} alerts have waited for a delivery for more than 5 minutes"
        remedy = "start a replica, and declare the missing channels; see `cronledger alerts`"
        yield Finding("alerts", "problem", found, remedy)
    if row["failed_deliveries"]:
        found = f"{row['failed_deliveries']} deliveries failed for good in the last day"
        remedy = "see the executions of the queue alerts, correct the channel, and retry them"
        yield Finding("alerts", "problem", found, remedy)
