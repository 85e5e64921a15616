"""Deliberate mistakes in what reports of another scheduler become. `mutations` tries them."""

from tests.simulation.support.mistakes.mutating import in_function

begins_at_the_receipt = in_function(
    "record_reports",
    ("'9999-01-01 00:00+00'), report.started_at", "'9999-01-01 00:00+00'), report.received_at"),
)
"""A run whose report was delivered late starts late in the ledger."""
