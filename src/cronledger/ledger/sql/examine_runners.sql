-- Lists runners of the last day that have not stopped in good order: whether each is alive, its errors if it is failing,
-- its version and age, its clock, the versions by which it reads schedules, and whether a job is in one of its queues.
-- No lock. Zero rows: there are none.
SELECT r.runner_id AS id, r.stale_after > {schema}.db_now() AS alive, r.version = 'external' AS external,
       r.version, {schema}.db_now() - r.started_at AS age,
       CASE r.state WHEN 'failing' THEN r.failing END AS failing, {schema}.db_now() - r.heartbeat_at AS seen_ago,
       r.clock_skew, r.queues,
       r.fingerprint ->> 'tzdata' AS tzdata, r.fingerprint ->> 'croniter' AS croniter,
       EXISTS (SELECT FROM {schema}.job_details j
               WHERE j.retired_at IS NULL AND (j.queue = ANY (r.queues)
                     OR 'external:' || j.queue = ANY (r.handlers))) AS has_jobs
FROM {schema}.runner_status r
WHERE r.state <> 'stopped' AND r.stale_after > {schema}.db_now() - interval '1 day'
ORDER BY r.runner_id
