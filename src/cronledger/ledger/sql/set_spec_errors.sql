-- Records why these jobs cannot be planned; the next edit clears it. Only for the revision that was read,
-- because a newer edit may be correct.
-- Lock: jobs FOR NO KEY UPDATE by name, SKIP LOCKED, in a transaction of its own, because the executions that the
-- claim has won start after it. If another transaction holds a job, the next claim that plans the job records the error.
WITH held AS MATERIALIZED (
    SELECT j.name, u.error
    FROM unnest(%(jobs)s::text[], %(revisions)s::bigint[], %(errors)s::text[]) AS u(name, revision, error)
    JOIN {schema}.jobs j ON j.name = u.name AND j.revision = u.revision
    WHERE j.spec_error IS DISTINCT FROM u.error
    ORDER BY j.name FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE {schema}.jobs j SET spec_error = h.error FROM held h WHERE j.name = h.name
RETURNING j.name
