-- Records how a call of the job's scope provider ended: with a list of scopes, or with an error.
-- Lock: the row of the provider, waiting. Zero rows: the job does not exist.
INSERT INTO {schema}.scope_providers AS p
    (job_name, asked_at, asked_by, answered_at, failures, failing_since, error)
SELECT j.name, n.at, %(runner)s, CASE WHEN n.error IS NULL THEN n.at END, (n.error IS NOT NULL)::int,
       CASE WHEN n.error IS NOT NULL THEN n.at END, n.error
FROM {schema}.jobs j
CROSS JOIN (SELECT {schema}.db_clock() AS at, %(error)s::text AS error) n
WHERE j.name = %(job)s
ON CONFLICT (job_name) DO UPDATE
SET asked_at = EXCLUDED.asked_at, asked_by = EXCLUDED.asked_by,
    answered_at = coalesce(EXCLUDED.answered_at, p.answered_at),
    failures = CASE WHEN EXCLUDED.error IS NULL THEN 0 ELSE p.failures + 1 END,
    failing_since = CASE WHEN EXCLUDED.error IS NOT NULL
                         THEN coalesce(p.failing_since, EXCLUDED.failing_since) END,
    error = EXCLUDED.error
