-- Removes runners that were not seen for a day. Lock: runners, SKIP LOCKED.
DELETE FROM {schema}.runners r
WHERE r.id IN (SELECT d.id FROM {schema}.runners d
               WHERE d.stale_after < {schema}.db_now() - interval '1 day'
               ORDER BY d.id FOR UPDATE SKIP LOCKED)
RETURNING r.id
