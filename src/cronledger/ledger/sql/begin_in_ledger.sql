-- Returns the id of the ledger in which a runner begins to work. Raises CL005 in another database than the
-- ledger's own (restored or cloned). No lock. Always one row.
SELECT (SELECT i.ledger_id FROM {schema}.identity i) AS ledger_id
FROM {schema}_internal.require_own_database()
