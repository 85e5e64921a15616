-- Its conditions allow 2 minutes: two full rounds of every sweeper, including the staggered one.
-- enable_seqscan = off, because PostgreSQL 18 keeps the plan for the session. With statistics of empty tables it would read
-- all jobs and revisions once for each RUNNING execution.
CREATE OR REPLACE FUNCTION {schema}_internal.present_violations()
RETURNS TABLE (kind text, job_name text, scope_kind text, scope_id text, plan_time timestamptz,
               execution_id bigint, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
SET enable_seqscan = off AS $$
    WITH RECURSIVE limited AS (
        (SELECT s.job_name FROM {schema}.schedules s WHERE s.parked = 'limit' ORDER BY s.job_name LIMIT 1)
        UNION ALL
        SELECT (SELECT s.job_name FROM {schema}.schedules s
                WHERE s.parked = 'limit' AND s.job_name > l.job_name ORDER BY s.job_name LIMIT 1)
        FROM limited l WHERE l.job_name IS NOT NULL
    ), sweeping AS MATERIALIZED (  -- live runners that have been sweeping for 2 minutes
        SELECT r.queues, r.handlers, r.labels FROM {schema}.runners r
        WHERE r.state = 'running' AND r.stale_after > {schema}.db_now() AND r.version <> 'external'
          AND r.started_at < {schema}.db_now() - interval '2 minutes'
    ), fresh AS MATERIALIZED (  -- an edit re-arms schedules, and claims plan them again
        SELECT DISTINCT r.job_name FROM {schema}.job_revisions r
        WHERE r.effective_from > {schema}.db_now() - interval '2 minutes'
    ), lately AS MATERIALIZED (  -- RUNNING now or 2 minutes ago; read only where a limit has room now
        SELECT e.job_name, e.queue, count(*) AS count FROM {schema}.executions e
        WHERE e.plan_time > {schema}.db_now() - interval '7 days' AND e.runner_id IS DISTINCT FROM 'observed'
          AND (e.status = 'RUNNING' OR e.updated_at > {schema}.db_now() - interval '2 minutes')
        GROUP BY e.job_name, e.queue
    )
    SELECT 'over_limit'::text, NULL::text, NULL::text, NULL::text, NULL::timestamptz, NULL::bigint,
           format('%s executions of queue %s are RUNNING; its max_running is %s', n.running, q.name, q.max_running)
    FROM {schema}.queues q
    CROSS JOIN LATERAL (SELECT count(*) AS running FROM {schema}.executions e
                        WHERE e.queue = q.name AND e.status = 'RUNNING'
                          AND e.runner_id <> 'observed') n
    WHERE n.running > q.max_running
    UNION ALL
    SELECT 'stale', e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id,
           format('its lease ended at %s, runner %s was last seen at %s, and no runner has swept or stolen it',
                  e.stale_after, e.runner_id, e.heartbeat_at)
    FROM {schema}.executions e
    LEFT JOIN {schema}.jobs j ON j.name = e.job_name
    WHERE e.status = 'RUNNING'
      -- A runner that has just connected waits for one stale_timeout.
      AND e.stale_after < {schema}.db_now() - coalesce(j.stale_timeout, '60 s') - interval '2 minutes'
      -- In an accepted copy, the first replica ends what the original had begun.
      AND (coalesce(e.cancel_requested_by, '') NOT LIKE '% (accept-database)' OR EXISTS (SELECT FROM sweeping))
      -- While its job or queue is paused a lease that may be stolen waits for the end of the pause.
      AND NOT coalesce(
          {schema}_internal.may_be_stolen(
              j.allow_stale_reentry, e.cancel_requested_at, e.attempt, e.max_attempts)
          AND j.retired_at IS NULL
          AND (j.paused_at IS NOT NULL
               OR EXISTS (SELECT FROM {schema}.queues q WHERE q.name = e.queue AND q.paused_at IS NOT NULL)
               OR EXISTS (SELECT FROM {schema}.job_revisions r
                          WHERE (r.job_name, r.revision) = (j.name, j.revision)
                            AND r.effective_from > {schema}.db_now() - j.stale_timeout - interval '2 minutes')),
          false)
    UNION ALL
    SELECT 'parked', s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, NULL,
           format('it is parked %s, and %s', s.parked, CASE s.parked
               WHEN 'paused' THEN 'its job is not paused'
               WHEN 'retired' THEN 'neither its job nor its scope is retired'
               WHEN 'unscheduled' THEN 'its job has a schedule'
               ELSE 'its job has no spec_error' END)
    FROM {schema}.jobs j
    JOIN {schema}.schedules s ON s.job_name = j.name
    WHERE j.retired_at IS NULL AND s.parked IN ('paused', 'retired', 'unscheduled', 'spec_error') AND CASE s.parked
        -- An edit re-arms its schedules itself, and at once.
        WHEN 'paused' THEN (j.paused_at IS NULL OR j.paused_until < {schema}.db_now() - interval '2 minutes')
                           AND s.retired_at IS NULL
        WHEN 'retired' THEN s.retired_at IS NULL OR s.returned_at < {schema}.db_now() - interval '2 minutes'
        WHEN 'unscheduled' THEN j.schedule IS NOT NULL
        -- The error is written after the claim that found it.
        WHEN 'spec_error' THEN j.spec_error IS NULL AND (
            SELECT r.effective_from FROM {schema}.job_revisions r
            WHERE (r.job_name, r.revision) = (j.name, j.revision)) < {schema}.db_now() - interval '2 minutes'
        END
    UNION ALL
    SELECT 'parked', s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, NULL,
           'it is parked waiting, and nothing of its scope is RUNNING; a live runner should have seen that'
    FROM {schema}.schedules s
    LEFT JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.parked = 'waiting' AND EXISTS (SELECT FROM sweeping) AND NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
          AND e.status = 'RUNNING' AND e.runner_id <> 'observed')
      -- CASE, so that the history is read only for those that are left.
      AND CASE WHEN j.name IN (SELECT f.job_name FROM fresh f) THEN false ELSE NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
          AND e.updated_at > {schema}.db_now() - interval '2 minutes') END
    UNION ALL
    SELECT 'parked', s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, NULL,
           'it is parked limit, and its job and its queue have room; a live runner should have seen that'
    FROM limited l
    CROSS JOIN LATERAL (
        SELECT n.* FROM {schema}.schedules n WHERE n.parked = 'limit' AND n.job_name = l.job_name
        ORDER BY n.next_plan_time LIMIT 1) s
    LEFT JOIN {schema}.jobs j ON j.name = s.job_name
    LEFT JOIN {schema}.queues q ON q.name = s.queue
    WHERE EXISTS (SELECT FROM sweeping)
      AND CASE
          WHEN j.name IN (SELECT f.job_name FROM fresh f) THEN false
          WHEN j.max_running <= (SELECT count(*) FROM {schema}.executions e
                                 WHERE e.job_name = j.name AND e.status = 'RUNNING'
                                   AND e.runner_id <> 'observed') THEN false
          WHEN q.max_running <= (SELECT count(*) FROM {schema}.executions e
                                 WHERE e.queue = q.name AND e.status = 'RUNNING'
                                   AND e.runner_id <> 'observed') THEN false
          WHEN j.max_running <= (SELECT sum(b.count) FROM lately b WHERE b.job_name = j.name) THEN false
          ELSE coalesce(q.max_running > (SELECT coalesce(sum(b.count), 0) FROM lately b
                                         WHERE b.queue = q.name), true) END
    UNION ALL
    SELECT 'parked', s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, NULL,
           'it is parked no_runner, and a live runner has its queue, its handler and its labels'
    FROM {schema}.schedules s
    JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.parked = 'no_runner' AND j.name NOT IN (SELECT f.job_name FROM fresh f)
      AND EXISTS (SELECT FROM sweeping r
                  WHERE s.queue = ANY (r.queues) AND (j.handler IN ('command', 'sql', 'http')
                                                      OR j.target ->> 'python' = ANY (r.handlers))
                    AND (j.on IS NULL OR j.on <@ r.labels)
                    AND (s.scope_kind <> 'host' OR 'host=' || s.scope_id = ANY (r.labels)))
    UNION ALL
    SELECT 'gate', e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id,
           'it waits for required jobs, and has no row in gates; so nothing opens its gate'
    FROM {schema}.executions e
    WHERE e.status = 'PENDING' AND e.next_attempt_at IS NULL AND NOT EXISTS (
        SELECT FROM {schema}.gates g
        WHERE (g.job_name, g.scope_kind, g.scope_id, g.plan_time) = (e.job_name, e.scope_kind, e.scope_id, e.plan_time))
    UNION ALL
    SELECT 'gate', g.job_name, g.scope_kind, g.scope_id, g.plan_time, NULL,
           'it has a row in gates, and no execution waits there'
    FROM {schema}.gates g
    WHERE NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (g.job_name, g.scope_kind, g.scope_id, g.plan_time)
          AND e.status = (SELECT 'PENDING') AND e.next_attempt_at IS NULL)
$$;
COMMENT ON FUNCTION {schema}_internal.present_violations() IS 'Lists violations in the current state: over_limit (of queues), stale, parked, gate.';
