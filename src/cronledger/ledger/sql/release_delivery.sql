-- Returns a delivery of alerts to PENDING, because its runner drains, and notifies the others. One row: NULL. Zero rows:
-- the lease is lost, or its end is written. Lock: the delivery, waiting.
WITH released AS (
    UPDATE {schema}.deliveries d
    SET status = 'PENDING', lease_token = NULL, attempt = d.attempt - 1, due_at = {schema}.db_clock()
    WHERE d.id = %(id)s AND d.lease_token = %(token)s
    RETURNING 1
)
SELECT pg_notify('{schema}', 'alerts') FROM released
