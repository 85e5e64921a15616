-- Limited jobs among these whose row this transaction now holds.
-- Lock: jobs FOR NO KEY UPDATE, SKIP LOCKED (jobs come before schedules in the lock order). A
-- limited job that does not come back is not claimed this round.
SELECT j.name FROM {schema}.jobs j
WHERE j.name = ANY (%(jobs)s::text[]) AND j.max_running IS NOT NULL
ORDER BY j.name FOR NO KEY UPDATE SKIP LOCKED
