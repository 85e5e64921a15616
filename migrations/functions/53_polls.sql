-- What a poll searches for. A poll is the one statement of a check-in, and an idle replica sends little else:
-- earliest_due returns when the replica has to claim, left_behind what its sweeper has to repair.
-- plpgsql, because it keeps its plans. The settings of the planner are those of a step, because a check-in
-- has no transaction that could set them.

-- The conditions of a claim that stay as they are until somebody writes: queues, pauses, kinds, functions. Those
-- that the next end of an execution may change (limits, overlap) are left to the claim, which repeats all of them.
-- Of each job only the first waiting execution counts. If its own queue and the queue of the job are both left
-- to others, then later ones probably are as well, and to be sure would mean to read all of them. Of a paused
-- job the first hundred since the pause are read, because one of them may have been forced to start.
CREATE OR REPLACE FUNCTION {schema}_internal.earliest_due(
    of_queues text[], of_kinds text[], of_functions text[], sql_commands boolean, excluded_jobs text[])
RETURNS timestamptz LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_generic_plan SET seq_page_cost = 1000 AS $$
BEGIN
    RETURN (
        WITH RECURSIVE d AS (
            (SELECT e.job_name FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
             ORDER BY e.job_name LIMIT 1)
            UNION ALL
            SELECT (SELECT e.job_name FROM {schema}.executions e
                    WHERE e.next_attempt_at IS NOT NULL AND e.job_name > d.job_name
                    ORDER BY e.job_name LIMIT 1)
            FROM d WHERE d.job_name IS NOT NULL
        ), open AS MATERIALIZED (
            SELECT q.name FROM unnest(of_queues) AS q(name)
            WHERE NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = q.name AND p.paused_at IS NOT NULL)
        ), w AS (
            SELECT o.name AS queue, (
                SELECT s.job_name FROM {schema}.schedules s WHERE s.woken AND s.queue = o.name
                ORDER BY s.job_name LIMIT 1) AS job
            FROM open o
            UNION ALL
            SELECT w.queue, (
                SELECT s.job_name FROM {schema}.schedules s
                WHERE s.woken AND s.queue = w.queue AND s.job_name > w.job ORDER BY s.job_name LIMIT 1)
            FROM w WHERE w.job IS NOT NULL
        )
        SELECT least(
            (SELECT min(n.next_due_at) FROM open o
             CROSS JOIN LATERAL (
                 SELECT s.next_due_at FROM {schema}.schedules s
                 WHERE NOT s.woken AND s.queue = o.name AND s.next_due_at IS NOT NULL
                   AND s.job_name NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job))
                 ORDER BY s.next_due_at LIMIT 1) n),
            (SELECT n.next_due_at FROM w
             CROSS JOIN LATERAL (
                 SELECT s.next_due_at FROM {schema}.schedules s
                 WHERE s.woken AND s.queue = w.queue AND s.job_name = w.job LIMIT 1) n
             WHERE w.job NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job))
             LIMIT 1),
            (SELECT min(n.next_attempt_at) FROM d
             CROSS JOIN LATERAL (
                 SELECT j.name, j.queue, j.paused_at FROM {schema}.jobs j
                 WHERE j.name = d.job_name AND j.retired_at IS NULL AND j.handler = ANY (of_kinds)
                   AND (j.handler <> 'python'
                        OR j.target ->> 'python' IN (SELECT f.name FROM unnest(of_functions) f(name)))
                   AND (j.handler <> 'command' OR sql_commands OR j.source IS NOT NULL)
                   AND j.name NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job)) LIMIT 1) j
             CROSS JOIN LATERAL (
                 SELECT f.next_attempt_at, f.queue FROM (
                     SELECT e.*, row_number() OVER (ORDER BY e.next_attempt_at) AS place FROM (
                         SELECT e.next_attempt_at, e.queue, e.trigger, e.status FROM {schema}.executions e
                         WHERE e.job_name = j.name AND e.next_attempt_at > coalesce(j.paused_at, '-infinity')
                         ORDER BY e.next_attempt_at LIMIT CASE WHEN j.paused_at IS NULL THEN 1 ELSE 100 END) e) f
                 WHERE j.paused_at IS NULL OR (f.trigger = 'manual' AND f.status = 'PENDING') OR f.place = 100
                 ORDER BY f.next_attempt_at LIMIT 1) n
             WHERE EXISTS (SELECT FROM open o WHERE o.name IN (j.queue, n.queue)))));
END $$;
COMMENT ON FUNCTION {schema}_internal.earliest_due(text[], text[], text[], boolean, text[]) IS 'Returns when a runner of these abilities has to claim: the earliest instant at which a schedule or a waiting execution is due for it. An instant in the past: at once, although the claim may find that all of it is blocked. NULL: nothing is planned. Locks nothing.';

-- A loose scan: one probe of the index for each job.
CREATE OR REPLACE FUNCTION {schema}_internal.parked_jobs(reason text)
RETURNS TABLE (job_name text) LANGUAGE sql STABLE ROWS 10 AS $$
    WITH RECURSIVE n AS (
        (SELECT s.job_name FROM {schema}.schedules s WHERE s.parked = reason
         ORDER BY s.job_name LIMIT 1)
        UNION ALL
        SELECT (SELECT s.job_name FROM {schema}.schedules s
                WHERE s.parked = reason AND s.job_name > n.job_name ORDER BY s.job_name LIMIT 1)
        FROM n WHERE n.job_name IS NOT NULL
    ) SELECT n.job_name FROM n WHERE n.job_name IS NOT NULL
$$;
COMMENT ON FUNCTION {schema}_internal.parked_jobs(text) IS 'Lists the jobs that have schedules parked for this reason: waiting, limit, no_runner or spec_error.';

-- NOT IN, because it has a hash of the RUNNING scopes in every plan. OFFSET 0 keeps EXISTS a probe for each of
-- the few that replace.
CREATE OR REPLACE FUNCTION {schema}_internal.unblocked_schedules(most bigint, most_of_job bigint)
RETURNS SETOF {schema}.schedules LANGUAGE sql STABLE ROWS 10 AS $$
    SELECT w.* FROM (SELECT s.* FROM {schema}.schedules s WHERE s.parked = 'waiting' LIMIT most) w
    WHERE (w.job_name, w.scope_kind, w.scope_id) NOT IN (
        SELECT e.job_name, e.scope_kind, e.scope_id FROM {schema}.executions e WHERE e.status = 'RUNNING')
    UNION ALL
    SELECT w.* FROM (SELECT s.* FROM {schema}.schedules s WHERE s.parked = 'waiting' LIMIT most) w
    JOIN {schema}.jobs j ON j.name = w.job_name AND j.overlap = 'replace'
    WHERE EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (w.job_name, w.scope_kind, w.scope_id)
          AND e.status = 'RUNNING' AND e.cancel_requested_at IS NULL OFFSET 0)
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
          AND (j.handler IN ('command', 'sql', 'http') OR j.target ->> 'python' = ANY (r.handlers)))
    UNION ALL
    SELECT l.*
    FROM (SELECT n.job_name FROM {schema}_internal.parked_jobs('spec_error') n LIMIT most) n
    JOIN {schema}.jobs j ON j.name = n.job_name AND j.spec_error IS NULL
    CROSS JOIN LATERAL (
        SELECT s.* FROM {schema}.schedules s
        WHERE s.parked = 'spec_error' AND s.job_name = n.job_name LIMIT most_of_job) l
$$;
COMMENT ON FUNCTION {schema}_internal.unblocked_schedules(bigint, bigint) IS 'Lists the parked schedules that should not be parked any more. Their block is gone and they were not re-armed (a crash between a finish and its re-arming, a new runner that has the handler); or they replace an execution that was not requested to end, because its row was locked; or their job has no spec_error (a crash between the claim that parked them and its note; the next claim parks them again). most: how many waiting schedules, and how many jobs for each other reason, are considered. most_of_job: how many schedules of each such job are. NULL: all; of a job that has reached a limit as many as there is room for.';

-- Without a schedule that is unblocked, every parked job is probed. Beyond `most` of them the sweeper searches
-- instead, with a statement of its own: a check-in must not become slow by what is parked. What is dirty is
-- not examined here, because only settle_inputs decides that.
CREATE OR REPLACE FUNCTION {schema}_internal.left_behind(most integer)
RETURNS text[] LANGUAGE plpgsql STABLE STRICT
SET jit = off SET plan_cache_mode = force_generic_plan SET seq_page_cost = 1000 AS $$
BEGIN
    RETURN (
        WITH RECURSIVE d AS (
            (SELECT e.job_name FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
             ORDER BY e.job_name LIMIT 1)
            UNION ALL
            SELECT (SELECT e.job_name FROM {schema}.executions e
                    WHERE e.next_attempt_at IS NOT NULL AND e.job_name > d.job_name
                    ORDER BY e.job_name LIMIT 1)
            FROM d WHERE d.job_name IS NOT NULL
        )
        SELECT coalesce(array_agg(w.what), '{}') FROM (
            SELECT 'schedules' AS what
            WHERE EXISTS (SELECT FROM {schema}.schedules s WHERE s.parked = 'waiting' OFFSET most)
               OR EXISTS (SELECT FROM {schema}_internal.parked_jobs('limit') OFFSET most)
               OR EXISTS (SELECT FROM {schema}_internal.parked_jobs('no_runner') OFFSET most)
               OR EXISTS (SELECT FROM {schema}_internal.parked_jobs('spec_error') OFFSET most)
               OR EXISTS (SELECT FROM {schema}_internal.unblocked_schedules(most, 1))
            UNION ALL
            SELECT 'inputs'
            WHERE EXISTS (
                      SELECT FROM {schema}.schedules s
                      WHERE coalesce(s.input_watermark > s.success_watermark, s.input_watermark IS NOT NULL))
               OR EXISTS (
                      SELECT FROM {schema}.executions f
                      WHERE f.next_attempt_at IS NOT NULL AND f.enqueue_key IS NOT NULL AND f.status = 'FAILED')
            UNION ALL
            SELECT 'orphans'
            WHERE EXISTS (
                      SELECT FROM (SELECT d.job_name FROM d WHERE d.job_name IS NOT NULL LIMIT most) d
                      LEFT JOIN {schema}.jobs j ON j.name = d.job_name
                      WHERE j.name IS NULL OR j.retired_at IS NOT NULL)
               OR EXISTS (SELECT FROM d WHERE d.job_name IS NOT NULL OFFSET most)
            UNION ALL
            SELECT 'runners'
            WHERE EXISTS (SELECT FROM {schema}.runners r
                          WHERE r.stale_after < {schema}.db_now() - interval '1 day'
                            AND (r.diagnostics <> '{}' OR r.handlers <> '{}'))) w);
END $$;
COMMENT ON FUNCTION {schema}_internal.left_behind(integer) IS 'Returns what the sweeper has to repair: schedules (rearm_left_behind), inputs (settle_left_behind), orphans (end_orphans), runners (reap_runners). More than `most` schedules or jobs of one kind count as something to repair, because no more are examined. most NULL: examines nothing and returns NULL. Locks nothing.';
