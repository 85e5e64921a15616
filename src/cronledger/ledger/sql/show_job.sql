-- Returns the definition and the state of one job, without target and payload. No lock. Zero rows: the job does not
-- exist.
SELECT j.*, CASE WHEN j.retired_at IS NOT NULL THEN 'retired'
                 WHEN j.spec_error IS NOT NULL THEN 'broken'
                 WHEN j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true)
                 THEN 'paused' ELSE 'active' END AS state
FROM {schema}.job_details j
WHERE j.name = %(job)s
