"""Deliberate mistakes in what reports of another scheduler become. `mutations` tries them."""

from tests.simulation.support.mistakes.mutating import in_function

begins_at_the_receipt = in_function(
    "record_reports",
    ("'9999-01-01 00:00+00'), report.started_at", "'9999-01-01 00:00+00'), report.received_at"),
)
"""A run whose report was delivered late starts late in the ledger."""
both_sides_run = in_function(
    "hand_over",
    ("OR t.until IS NULL), false) INTO runs", "OR t.until IS NULL), false) OR true INTO runs"),
)
"""The other scheduler keeps a job that replicas have adopted."""
forgets_the_return = in_function("replica_times", ("(d ->> 'returned_at')", "(d ->> 'none')"))
"""The other scheduler does not get the job back."""
