"""What people and handlers wrote in the texts of views, which are otherwise the product's."""

from cronledger.ledger.reports import Row


def of_overdue(reason: str, detail: str) -> str:
    """Return what people or handlers wrote in a detail of `overdue`: a reason, or an error."""
    if reason == "spec_error":
        return detail
    return "" if reason == "no_provider" else detail.partition(": ")[2]


def of_alert(event: str, summary: str) -> str:
    """Return what people or handlers wrote in the summary of an alert."""
    if event == "skipped":  # what was missing of a required job
        return ""
    text = summary.partition(": ")[2]
    return of_overdue("", text) if event == "overdue" else text


def of_ledger(row: Row) -> str:
    """Return what people or handlers wrote in the first line of the detail of a row of `ledger`."""
    line, _, more = (row["detail"] or "").partition("\n")
    match row["outcome"], row["reason"]:
        case ("PENDING", _) | ("SKIPPED", "upstream") | ("CANCELLED", "window_processed"):
            return ""
        case "FAILED", _:
            error = line.partition(": ")[2]
            return error if more else error.rpartition("; ")[0]
        case _:
            return line
