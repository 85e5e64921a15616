-- Writes the end of an attempt of a delivery, guarded by its token. Without an error the status is SUCCESS, otherwise
-- FAILED. A FAILED delivery is tried again later, unless the error is final or no attempt is left. One row: the new
-- status. Zero rows: the lease is lost, or the end was written before. Lock: the delivery, waiting.
UPDATE {schema}.deliveries d
SET status = CASE WHEN %(code)s::text IS NULL THEN 'SUCCESS' ELSE 'FAILED' END, lease_token = NULL,
    finished_at = {schema}.db_clock(), error_code = %(code)s, error_msg = %(message)s,
    due_at = CASE WHEN %(code)s::text IS NOT NULL AND NOT %(final)s AND d.attempt < d.max_attempts THEN
        {schema}.db_clock() + (ARRAY['10 s', '1 min', '5 min', '15 min', '1 h']::interval[])[least(d.attempt, 5)] END
WHERE d.id = %(id)s AND d.lease_token = %(token)s
RETURNING d.status
