-- Removes runners that were last seen before the retention, and takes the state at the last check-in from those
-- that were not seen for a day, so that the rows that are kept are small. Lock: runners, SKIP LOCKED.
WITH ends AS MATERIALIZED (
    SELECT {schema}.db_now() - r.keep AS at FROM {schema}.retention r
), held AS MATERIALIZED (
    SELECT d.id, d.stale_after < e.at AS ended FROM {schema}.runners d, ends e
    WHERE d.stale_after < {schema}.db_now() - interval '1 day'
      AND (d.diagnostics <> '{}' OR d.handlers <> '{}'
           OR d.stale_after < e.at)
    ORDER BY d.id FOR UPDATE OF d SKIP LOCKED
), removed AS (
    DELETE FROM {schema}.runners r USING held h
    WHERE r.id = h.id AND h.ended
    RETURNING r.id
)
UPDATE {schema}.runners r SET diagnostics = '{}', handlers = '{}'
FROM held h
WHERE r.id = h.id AND NOT h.ended
RETURNING r.id
