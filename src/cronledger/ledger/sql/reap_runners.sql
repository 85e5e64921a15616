-- Removes runners that were last seen before the retention, and takes the state at the last check-in from those
-- that were not seen for a day, so that the rows that are kept are small. Lock: runners, SKIP LOCKED.
WITH held AS MATERIALIZED (
    SELECT d.id, d.stale_after FROM {schema}.runners d
    WHERE d.stale_after < {schema}.db_now() - interval '1 day'
      AND (d.diagnostics <> '{}' OR d.handlers <> '{}'
           OR d.stale_after < {schema}.db_now() - greatest(%(retention)s::interval, interval '1 day'))
    ORDER BY d.id FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM {schema}.runners r USING held h
    WHERE r.id = h.id AND h.stale_after < {schema}.db_now() - greatest(%(retention)s::interval, interval '1 day')
    RETURNING r.id
)
UPDATE {schema}.runners r SET diagnostics = '{}', handlers = '{}'
FROM held h
WHERE r.id = h.id AND h.stale_after >= {schema}.db_now() - greatest(%(retention)s::interval, interval '1 day')
RETURNING r.id
