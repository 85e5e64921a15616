"""Limits of the values in the ledger. Constraints of the tables enforce the same limits."""

from datetime import UTC, datetime, timedelta

LONGEST = timedelta(days=36_525)
FIRST_INSTANT = datetime(1000, 1, 1, tzinfo=UTC)
END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)
"""Instants lie in [FIRST_INSTANT, END_OF_TIME), because a UTC offset overflows outside it."""
NAME_PATTERN = r"^[^\x00-\x1f\x7f]{1,200}$"
_NAME = r"[^\W\d]\w*"
_PART = rf"({_NAME}|<locals>|<lambda>)"
FUNCTION_PATTERN = rf"^{_NAME}(\.{_NAME})*:{_PART}(\.{_PART})*$"
LARGEST_INTEGER = 2**31 - 1
LARGEST_BIGINT = 2**63 - 1
