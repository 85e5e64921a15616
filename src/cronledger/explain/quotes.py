"""What people and handlers wrote in the texts of views, which are otherwise the product's."""

import re

from cronledger.ledger.reports import Row


def of_overdue(reason: str, detail: str) -> str:
    """Return what people or handlers wrote in a detail of `overdue`: a reason, or an error."""
    match reason:
        case "spec_error":
            return detail
        case "paused" | "queue_paused":
            return detail.partition("paused by ")[2]
        case "no_provider":
            detail = detail.partition(": ")[2]  # when it was last called, and its last error
    return detail.partition(": ")[2]


def of_alert(event: str, summary: str) -> str:
    """Return what people or handlers wrote in the summary of an alert."""
    if event in {"deadline", "skipped"}:  # until when, or what was missing of a required job
        return ""
    if event == "overdue":
        return of_overdue("", re.split(" has not (?:started|ended): ", summary, maxsplit=1)[-1])
    return summary.partition(": ")[2]


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
