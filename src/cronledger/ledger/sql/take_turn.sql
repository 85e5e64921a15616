-- Whether this transaction is the only one at it; the turn ends with the transaction. In another
-- database than the ledger's own it is nobody's.
-- Lock: a transaction-level advisory lock, never waited for.
SELECT {schema}_internal.other_database() IS NULL
       AND pg_try_advisory_xact_lock(hashtextextended('{schema}.' || %(subject)s::text, 0))
