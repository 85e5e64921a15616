-- Ends the pauses whose paused_until has passed. Lock: jobs by name, SKIP LOCKED, then (by trigger)
-- schedules.
WITH held AS MATERIALIZED (
    SELECT j.name FROM {schema}.jobs j WHERE j.paused_until <= {schema}.db_now()
    ORDER BY j.name FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs j
SET paused_at = NULL, edited_by = 'paused_until'
FROM held h WHERE j.name = h.name
RETURNING j.name
