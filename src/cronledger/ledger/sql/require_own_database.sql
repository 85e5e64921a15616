-- Raises CL005 in another database than the ledger's own (restored or cloned). No lock. Always one row.
SELECT {schema}_internal.require_own_database()
