-- NOT IN, because it has a hash of the RUNNING scopes in every plan. OFFSET 0 keeps EXISTS a probe for each of
-- the few that replace.
CREATE OR REPLACE FUNCTION {schema}_internal.unblocked_schedules(most bigint, most_of_job bigint)
RETURNS SETOF {schema}.schedules LANGUAGE sql STABLE ROWS 10 AS $$
    SELECT w.* FROM (SELECT s.* FROM {schema}.schedules s WHERE s.parked = 'waiting' LIMIT most) w
    WHERE (w.job_name, w.scope_kind, w.scope_id) NOT IN (
        SELECT e.job_name, e.scope_kind, e.scope_id FROM {schema}.executions e
        WHERE e.status = 'RUNNING' AND e.runner_id <> 'observed')
    UNION ALL
    SELECT w.* FROM (SELECT s.* FROM {schema}.schedules s WHERE s.parked = 'waiting' LIMIT most) w
    JOIN {schema}.jobs j ON j.name = w.job_name AND j.overlap = 'replace'
    WHERE EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (w.job_name, w.scope_kind, w.scope_id)
          AND e.status = 'RUNNING' AND e.runner_id <> 'observed' AND e.cancel_requested_at IS NULL OFFSET 0)
    UNION ALL
    SELECT l.*
    FROM (SELECT n.job_name FROM {schema}_internal.parked_jobs('limit') n LIMIT most) n
    LEFT JOIN {schema}.jobs j ON j.name = n.job_name
    CROSS JOIN LATERAL {schema}_internal.job_room(j.name, j.max_running) limited
    CROSS JOIN LATERAL (
        SELECT s.* FROM {schema}.schedules s
        WHERE s.parked = 'limit' AND s.job_name = n.job_name
        ORDER BY s.next_plan_time LIMIT least(most_of_job, coalesce(limited.room, 1000))) l
    WHERE l.queue <> ALL (ARRAY(
        SELECT q.name FROM {schema}.queues q
        CROSS JOIN LATERAL {schema}_internal.queue_room(q.name, q.max_running) limited
        WHERE limited.room = 0))
    UNION ALL
    SELECT l.*
    FROM (SELECT n.job_name FROM {schema}_internal.parked_jobs('no_runner') n LIMIT most) n
    LEFT JOIN {schema}.jobs j ON j.name = n.job_name
    CROSS JOIN LATERAL (
        SELECT s.* FROM {schema}.schedules s
        WHERE s.parked = 'no_runner' AND s.job_name = n.job_name LIMIT most_of_job) l
    WHERE j.name IS NULL OR EXISTS (
        SELECT FROM {schema}.runners r
        WHERE r.state = 'running' AND r.stale_after > {schema}.db_now() AND l.queue = ANY (r.queues)
          AND (j.handler IN ('command', 'sql', 'http') OR j.target ->> 'python' = ANY (r.handlers))
          AND (j.on IS NULL OR j.on <@ r.labels)
          AND (l.scope_kind <> 'host' OR 'host=' || l.scope_id = ANY (r.labels)))
    UNION ALL
    SELECT l.*
    FROM (SELECT n.job_name FROM {schema}_internal.parked_jobs('spec_error') n LIMIT most) n
    JOIN {schema}.jobs j ON j.name = n.job_name AND j.spec_error IS NULL
    CROSS JOIN LATERAL (
        SELECT s.* FROM {schema}.schedules s
        WHERE s.parked = 'spec_error' AND s.job_name = n.job_name LIMIT most_of_job) l
$$;
COMMENT ON FUNCTION {schema}_internal.unblocked_schedules(bigint, bigint) IS 'Lists the parked schedules that should no longer be parked. Their block is gone and they were not re-armed (a crash between a finish and its re-arming, a new runner that has the handler); or they replace an execution that was not requested to end, because its row was locked; or their job has no spec_error (a crash between the claim that parked them and its note; the next claim parks them again). most: how many waiting schedules, and how many jobs for each other reason, are considered. most_of_job: how many schedules of each such job are. NULL: all; of a job that has reached a limit as many as there is room for.';
