"""The check of alerts and their deliveries."""

from collections.abc import Iterator

from cronledger.explain.findings import DoctorContext, Finding, named, otherwise_ok


@otherwise_ok("every alert has a delivery, and none waits or failed in the last day")
def alerts(context: DoctorContext) -> Iterator[Finding]:
    """Check that alerts are delivered, and that the channels in `notify` exist."""
    row = context.row("examine_alerts")
    if row["missing"]:
        found = f"channels that do not exist: {named(row['missing'])}"
        yield Finding("alerts", "problem", found, "declare the channel, or correct notify")
    if row["undelivered"]:
        found = f"alerts without a delivery for more than 5 minutes: {row['undelivered']}"
        remedy = "start a replica, and declare the missing channels; see `cronledger alerts`"
        yield Finding("alerts", "problem", found, remedy)
    if row["waiting"]:
        found = f"deliveries that have waited for more than 5 minutes: {row['waiting']}"
        remedy = "start a replica whose alert_slots are not 0; see its log for delivery_failed"
        yield Finding("alerts", "problem", found, remedy)
    if row["failed_deliveries"]:
        found = f"failed deliveries of the last day: {row['failed_deliveries']}"
        remedy = (
            "see `cronledger channels deliveries --status FAILED`, correct the channel, and retry"
        )
        yield Finding("alerts", "problem", found, remedy)
