-- One row per job, where job_status has one per scope.
CREATE OR REPLACE VIEW {schema}.job_overview AS
SELECT j.name, j.schedule, j.timezone, j.queue, j.handler,
       {schema}_internal.job_state(j.retired_at, j.spec_error, j.paused_at, j.paused_until, q.paused_at) AS state,
       s.scopes, s.parked, s.next_plan_time, coalesce(r.running, 0) AS running, l.plan_time AS last_plan_time,
       l.status AS last_status, j.paused_until, j.spec_error, j.source, j.description, j.owner, j.labels,
       (SELECT p.id FROM {schema}.pauses p
        WHERE p.ended_at IS NULL AND s.next_plan_time + j.schedule_delay >= p.from_at
          AND coalesce(s.next_plan_time + j.schedule_delay <= p.until_at, true)
          AND {schema}_internal.pause_covers(p, j)
        ORDER BY p.until_at DESC NULLS FIRST, p.id LIMIT 1) AS next_pause
FROM {schema}.jobs j
LEFT JOIN {schema}.queues q ON q.name = j.queue
CROSS JOIN LATERAL (
    SELECT count(*) AS scopes,
           coalesce(array_agg(DISTINCT s.parked) FILTER (WHERE s.parked IS NOT NULL), '{}') AS parked,
           min(s.next_plan_time) FILTER (
               WHERE s.parked IS NULL OR s.parked IN ('waiting', 'limit', 'no_runner')
           ) AS next_plan_time
    FROM {schema}.schedules s
    WHERE s.job_name = j.name AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
) s
LEFT JOIN (
    -- Once for all jobs, because a search for each of them would open all partitions.
    SELECT e.job_name, count(*) AS running FROM {schema}.executions e
    WHERE e.status = 'RUNNING' GROUP BY e.job_name
) r ON r.job_name = j.name
LEFT JOIN LATERAL (
    SELECT n.plan_time, n.status
    FROM {schema}.schedules t
    CROSS JOIN LATERAL (
        SELECT e.plan_time, e.status FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (t.job_name, t.scope_kind, t.scope_id)
        ORDER BY e.plan_time DESC LIMIT 1
    ) n
    WHERE t.job_name = j.name AND s.scopes <= 100
    ORDER BY n.plan_time DESC LIMIT 1
) l ON true;
COMMENT ON VIEW {schema}.job_overview IS 'Jobs and their current state, one row each.';
COMMENT ON COLUMN {schema}.job_overview.name IS 'The job.';
COMMENT ON COLUMN {schema}.job_overview.schedule IS 'Cron text of five fields, or six with seconds first, @hourly and the like, @every 90s; NULL: runs only when triggered or enqueued.';
COMMENT ON COLUMN {schema}.job_overview.timezone IS 'Time zone of the schedule.';
COMMENT ON COLUMN {schema}.job_overview.queue IS 'Queue of the job. Runners that serve it execute the job.';
COMMENT ON COLUMN {schema}.job_overview.handler IS 'Kind of handler: python, command, sql, http, external.';
COMMENT ON COLUMN {schema}.job_overview.state IS 'active, paused, queue_paused, retired, or broken (spec_error contains the reason).';
COMMENT ON COLUMN {schema}.job_overview.scopes IS 'Number of scopes.';
COMMENT ON COLUMN {schema}.job_overview.parked IS 'Reasons for which scopes of the job are parked, each once.';
COMMENT ON COLUMN {schema}.job_overview.next_plan_time IS 'The soonest plan_time of its scopes that are not parked for good.';
COMMENT ON COLUMN {schema}.job_overview.next_pause IS 'The pause that will skip next_plan_time; NULL: none is planned for that time.';
COMMENT ON COLUMN {schema}.job_overview.running IS 'Number of executions that are RUNNING.';
COMMENT ON COLUMN {schema}.job_overview.last_plan_time IS 'Plan_time of the newest execution; NULL with more than 100 scopes.';
COMMENT ON COLUMN {schema}.job_overview.last_status IS 'Status of the newest execution; NULL with more than 100 scopes.';
COMMENT ON COLUMN {schema}.job_overview.paused_until IS 'When the pause ends by itself; NULL: it lasts until the job is resumed.';
COMMENT ON COLUMN {schema}.job_overview.spec_error IS 'Why the job cannot be planned or run; cleared by the next edit.';
COMMENT ON COLUMN {schema}.job_overview.source IS 'File or App that declared the job; NULL: SQL.';
COMMENT ON COLUMN {schema}.job_overview.description IS 'Description for people.';
COMMENT ON COLUMN {schema}.job_overview.owner IS 'The person or team that is responsible for the job; NULL: none is declared.';
COMMENT ON COLUMN {schema}.job_overview.labels IS 'Labels of the job, such as {"team": "data"}; NULL or empty: none.';
