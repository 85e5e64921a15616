-- Locks the rows of the limited jobs among these, and returns the names of those that it could lock.
-- Lock: jobs FOR NO KEY UPDATE, SKIP LOCKED, because jobs come before schedules in the lock order. A
-- limited job that does not come back is not claimed in this step.
SELECT j.name FROM {schema}.jobs j
WHERE j.name = ANY (%(jobs)s::text[]) AND j.max_running IS NOT NULL
ORDER BY j.name FOR NO KEY UPDATE SKIP LOCKED
