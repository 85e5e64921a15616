-- Whether this transaction is the only one at it; the turn ends with the transaction.
-- Lock: a transaction-level advisory lock, never waited for.
SELECT pg_try_advisory_xact_lock(hashtextextended('{schema}.' || %(subject)s::text, 0))
