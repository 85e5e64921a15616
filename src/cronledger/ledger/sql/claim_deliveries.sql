-- Claims deliveries of alerts for this runner: PENDING ones, retries and stale leases. Returns each with the target of
-- its channel, and the time of the claim. Lock: as claim_due. trusted_since: see is_stale. Zero rows: nothing is due.
SELECT c.id, c.job_name, c.attempt, c.max_attempts, c.lease_token AS token, c.payload::jsonb AS payload, j.target,
       {schema}.db_clock() AS claimed_at
FROM {schema}_internal.claim_due(%(runner)s, ARRAY['alerts'], ARRAY['external'], '{}', %(tokens)s::uuid[],
                                 %(trusted_since)s, max_rows => cardinality(%(tokens)s::uuid[]) + 20) c
JOIN {schema}.jobs j ON j.name = c.job_name
WHERE c.how <> 'refused'
