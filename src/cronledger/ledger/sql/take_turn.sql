-- Returns whether this transaction is the only one that does this work; the turn ends with the
-- transaction. False in another database than the ledger's own.
-- Lock: a transaction-level advisory lock, never waited for.
SELECT {schema}_internal.other_database() IS NULL
       AND pg_try_advisory_xact_lock(hashtextextended('{schema}.' || %(subject)s::text, 0))
