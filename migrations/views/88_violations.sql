-- Broken promises that SQL alone can find; `cronledger verify` finds the others.
--
-- History is judged by {schema}_internal.history_violations, which verify calls for all of it, job by job, and
-- the view for plan_times of the last 7 days: it reads the one or two partitions of executions that hold them,
-- eight times. The present state is read through the RUNNING index and the schedules that are parked, whatever
-- the size of history.
--
-- Every comparison is exact: a start is written after the ends that it waited for were committed, and
-- an edit takes effect after the claims that it waited for. Where the end of an attempt is unknown
-- (stolen, swept) it is known to have run until it was last seen, and no longer.

CREATE OR REPLACE FUNCTION {schema}_internal.history_violations(first timestamptz)
RETURNS TABLE (kind text, job_name text, scope_kind text, scope_id text, plan_time timestamptz,
               execution_id bigint, detail text)
LANGUAGE sql STABLE AS $$
    -- No CTE and no volatile function: the planner takes this text into the query that calls it, and
    -- conditions on the job reach every part.
    SELECT 'doubled'::text, e.job_name::text, e.scope_kind::text, e.scope_id::text, e.plan_time, e.id,
           format('it ran, and lies in the skip (%s) of %s to %s', k.reason, k.plan_time, k.through_plan_time)
    FROM {schema}.ledger k
    JOIN {schema}.ledger e
        ON (e.job_name, e.scope_kind, e.scope_id) = (k.job_name, k.scope_kind, k.scope_id)
        AND e.plan_time BETWEEN k.plan_time AND k.through_plan_time
    WHERE k.kind = 'skip' AND e.kind = 'execution' AND e.trigger = 'schedule'
      AND k.through_plan_time >= first AND e.plan_time >= first
    UNION ALL
    SELECT 'doubled', k.job_name, k.scope_kind, k.scope_id, k.following, NULL,
           format('it lies in two skips; the first (%s) is of %s to %s', k.reason, k.plan_time, k.through_plan_time)
    FROM (SELECT l.*, lead(l.plan_time) OVER (PARTITION BY l.job_name, l.scope_kind, l.scope_id
                                              ORDER BY l.plan_time) AS following
          FROM {schema}.ledger l WHERE l.kind = 'skip') k
    WHERE k.following <= k.through_plan_time AND k.through_plan_time >= first
    UNION ALL
    SELECT 'early', a.job_name, a.scope_kind, a.scope_id, a.plan_time, a.id,
           format('attempt %s started at %s, due at %s', a.attempt, a.started_at, a.due_at)
    FROM {schema}.attempts a
    WHERE a.started_at < a.due_at AND a.plan_time >= first
    UNION ALL
    SELECT 'overlapping', o.job_name, o.scope_kind, o.scope_id, o.plan_time, o.id,
           format('attempt %s started at %s beside another execution of this scope, RUNNING until %s; overlap was %s',
                  o.attempt, o.started_at,
                  CASE WHEN o.busy_until = 'infinity' THEN 'this moment' ELSE o.busy_until::text END,
                  r.definition ->> 'overlap')
    FROM (SELECT a.*, max(a.ran_until) OVER (
              PARTITION BY a.job_name, a.scope_kind, a.scope_id ORDER BY a.started_at, a.id, a.attempt
              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy_until
          FROM {schema}.attempts a WHERE a.plan_time >= first) o
    CROSS JOIN LATERAL (
        SELECT h.definition FROM {schema}.job_history h
        WHERE h.job_name = o.job_name AND h.effective_from <= o.started_at
        ORDER BY h.revision DESC LIMIT 1) r
    WHERE o.busy_until > o.started_at AND r.definition ->> 'overlap' <> 'allow'
    UNION ALL
    SELECT 'over_limit', n.job_name, n.scope_kind, n.scope_id, n.plan_time, n.id,
           format('attempt %s started at %s as number %s RUNNING of this job; max_running was %s',
                  n.attempt, n.at, n.running, r.definition ->> 'max_running')
    FROM (SELECT c.*, sum(c.step) OVER (PARTITION BY c.job_name ORDER BY c.at, c.step, c.id
                                        ROWS UNBOUNDED PRECEDING) AS running
          FROM (SELECT a.*, x.at, x.step
                FROM {schema}.attempts a
                CROSS JOIN LATERAL (VALUES (a.started_at, 1), (greatest(a.started_at, a.ran_until), -1)) x(at, step)
                WHERE a.plan_time >= first AND a.job_name IN (
                    SELECT h.job_name FROM {schema}.job_history h
                    WHERE h.definition ->> 'max_running' IS NOT NULL)) c) n
    CROSS JOIN LATERAL (
        SELECT h.definition FROM {schema}.job_history h
        WHERE h.job_name = n.job_name AND h.effective_from <= n.at
        ORDER BY h.revision DESC LIMIT 1) r
    -- A steal takes no room: its row was RUNNING already, perhaps under another limit.
    WHERE n.step = 1 AND n.how <> 'stolen' AND n.running > (r.definition ->> 'max_running')::integer
    UNION ALL
    SELECT 'attempts', t.job_name, t.scope_kind, t.scope_id, t.plan_time, t.id,
           CASE WHEN t.tokens < t.claims
                THEN format('two of its %s attempts had the same lease_token', t.claims)
                ELSE format('attempt %s; %s attempts were released, and max_attempts was %s', t.attempt,
                            t.released, h.definition ->> 'max_attempts') END
    FROM (SELECT a.job_name, a.scope_kind, a.scope_id, a.plan_time, a.id, a.revision,
                 max(a.attempt) AS attempt, count(*) AS claims, count(DISTINCT a.token_digest) AS tokens,
                 -- A released execution of a reentrant job keeps the error_code of its handler.
                 count(*) FILTER (WHERE NOT a.is_last AND a.error_code <> 'runner_crashed'
                     AND (a.error_code IN ('shutdown', 'lease_lost', 'not_started') OR EXISTS (
                         SELECT FROM {schema}.job_history j WHERE j.job_name = a.job_name
                         AND (j.definition ->> 'allow_stale_reentry')::boolean))) AS released,
                 count(*) FILTER (WHERE a.how = 'stolen') AS stolen,
                 -- Until 0021, a retry by hand set requested_by. The audit trail has the later ones.
                 bool_and(a.trigger = 'schedule' AND a.requested_by IS NULL) AS by_itself
          FROM {schema}.attempts a
          WHERE a.plan_time >= first AND (a.attempt > 1 OR NOT a.is_last)
          GROUP BY 1, 2, 3, 4, 5, 6) t
    LEFT JOIN {schema}.job_history h ON h.job_name = t.job_name AND h.revision = t.revision
    WHERE t.tokens < t.claims
       OR (t.by_itself AND t.attempt - t.released > greatest(
               (h.definition ->> 'max_attempts')::integer,
               CASE WHEN t.stolen > 0 THEN {schema}_internal.max_steals() END)
           AND t.id NOT IN (SELECT u.id FROM {schema}.audit o CROSS JOIN LATERAL unnest(o.execution_ids) u(id)
               WHERE o.verb IN ('retry', 'backfill')))
    UNION ALL
    SELECT 'unknown_end', a.job_name, a.scope_kind, a.scope_id, a.plan_time, a.id,
           format('the end of attempt %s (%s) is unknown, and attempt %s started at %s; the job was not reentrant',
                  a.attempt, a.error_code, a.following, a.next_start)
    FROM (SELECT b.*, lead(b.attempt) OVER w AS following, lead(b.started_at) OVER w AS next_start
          FROM {schema}.attempts b
          WHERE b.plan_time >= first AND (b.attempt > 1 OR NOT b.is_last)
          WINDOW w AS (PARTITION BY b.job_name, b.scope_kind, b.scope_id, b.plan_time ORDER BY b.attempt)) a
    CROSS JOIN LATERAL (
        SELECT h.definition FROM {schema}.job_history h
        WHERE h.job_name = a.job_name AND h.effective_from <= a.next_start
        ORDER BY h.revision DESC LIMIT 1) r
    -- retry(force => true) is a person's decision, which the audit trail has. Until 0021, requested_by had it.
    WHERE (a.error_code = 'runner_crashed' OR (
               a.error_code = 'stale_timeout' AND a.requested_by IS NULL
               AND a.id NOT IN (SELECT u.id FROM {schema}.audit o CROSS JOIN LATERAL unnest(o.execution_ids) u(id)
                   WHERE o.verb IN ('retry', 'backfill'))))
      AND NOT (r.definition ->> 'allow_stale_reentry')::boolean
$$;
COMMENT ON FUNCTION {schema}_internal.history_violations(timestamptz) IS 'Lists violations in executions and skips with plan_time from this instant on: doubled, early, overlapping, over_limit (of jobs), attempts, unknown_end.';
REVOKE EXECUTE ON FUNCTION {schema}_internal.history_violations(timestamptz) FROM PUBLIC;

-- SECURITY DEFINER, because readers of the view may not read tables. jit = off, because compiling for all
-- partitions takes longer than the query.
CREATE OR REPLACE FUNCTION {schema}_internal.recent_violations()
RETURNS TABLE (kind text, job_name text, scope_kind text, scope_id text, plan_time timestamptz,
               execution_id bigint, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
    FROM {schema}_internal.history_violations({schema}.db_now() - interval '7 days') v
    UNION ALL
    SELECT 'overlapping', b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.id,
           format('it is RUNNING beside execution %s of this scope; overlap was %s', a.id, r.overlap)
    FROM {schema}.executions a
    JOIN {schema}.executions b
        ON (b.job_name, b.scope_kind, b.scope_id) = (a.job_name, a.scope_kind, a.scope_id)
        AND b.status = 'RUNNING' AND (b.started_at, b.id) > (a.started_at, a.id)
    CROSS JOIN LATERAL (
        SELECT h.definition ->> 'overlap' AS overlap FROM {schema}.job_revisions h
        WHERE h.job_name = b.job_name AND h.effective_from <= b.started_at
        ORDER BY h.revision DESC LIMIT 1) r
    WHERE a.status = 'RUNNING' AND r.overlap <> 'allow'
      AND least(a.plan_time, b.plan_time) < {schema}.db_now() - interval '7 days'  -- else it is in history
$$;
COMMENT ON FUNCTION {schema}_internal.recent_violations() IS 'Lists history_violations of the last 7 days, and overlapping RUNNING executions of any age.';

-- Its conditions allow 2 minutes: two full rounds of every sweeper, including the staggered one.
CREATE OR REPLACE FUNCTION {schema}_internal.present_violations()
RETURNS TABLE (kind text, job_name text, scope_kind text, scope_id text, plan_time timestamptz,
               execution_id bigint, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH RECURSIVE limited AS (
        (SELECT s.job_name FROM {schema}.schedules s WHERE s.parked = 'limit' ORDER BY s.job_name LIMIT 1)
        UNION ALL
        SELECT (SELECT s.job_name FROM {schema}.schedules s
                WHERE s.parked = 'limit' AND s.job_name > l.job_name ORDER BY s.job_name LIMIT 1)
        FROM limited l WHERE l.job_name IS NOT NULL
    ), sweeping AS MATERIALIZED (  -- live runners that have been sweeping for 2 minutes
        SELECT r.queues, r.handlers FROM {schema}.runners r
        WHERE r.state = 'running' AND r.stale_after > {schema}.db_now() AND r.version <> 'external'
          AND r.started_at < {schema}.db_now() - interval '2 minutes'
    ), fresh AS MATERIALIZED (  -- an edit re-arms schedules, and claims plan them again
        SELECT DISTINCT r.job_name FROM {schema}.job_revisions r
        WHERE r.effective_from > {schema}.db_now() - interval '2 minutes'
    ), lately AS MATERIALIZED (  -- RUNNING now or 2 minutes ago; read only where a limit has room now
        SELECT e.job_name, e.queue, count(*) AS count FROM {schema}.executions e
        WHERE e.plan_time > {schema}.db_now() - interval '7 days'
          AND (e.status = 'RUNNING' OR e.updated_at > {schema}.db_now() - interval '2 minutes')
        GROUP BY e.job_name, e.queue
    )
    SELECT 'over_limit'::text, NULL::text, NULL::text, NULL::text, NULL::timestamptz, NULL::bigint,
           format('%s executions of queue %s are RUNNING; its max_running is %s', n.running, q.name, q.max_running)
    FROM {schema}.queues q
    CROSS JOIN LATERAL (SELECT count(*) AS running FROM {schema}.executions e
                        WHERE e.queue = q.name AND e.status = 'RUNNING') n
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
    LEFT JOIN {schema}.job_revisions r ON (r.job_name, r.revision) = (j.name, j.revision)
    WHERE j.retired_at IS NULL AND CASE s.parked
        -- An edit re-arms its schedules itself, and at once.
        WHEN 'paused' THEN (j.paused_at IS NULL OR j.paused_until < {schema}.db_now() - interval '2 minutes')
                           AND s.retired_at IS NULL
        WHEN 'retired' THEN s.retired_at IS NULL OR s.returned_at < {schema}.db_now() - interval '2 minutes'
        WHEN 'unscheduled' THEN j.schedule IS NOT NULL
        -- The error is written after the claim that found it.
        WHEN 'spec_error' THEN j.spec_error IS NULL AND r.effective_from < {schema}.db_now() - interval '2 minutes'
        END
    UNION ALL
    SELECT 'parked', s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, NULL,
           'it is parked waiting, and nothing of its scope is RUNNING; a live runner should have seen that'
    FROM {schema}.schedules s
    LEFT JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.parked = 'waiting' AND EXISTS (SELECT FROM sweeping) AND NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
          AND e.status = 'RUNNING')
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
                                 WHERE e.job_name = j.name AND e.status = 'RUNNING') THEN false
          WHEN q.max_running <= (SELECT count(*) FROM {schema}.executions e
                                 WHERE e.queue = q.name AND e.status = 'RUNNING') THEN false
          WHEN j.max_running <= (SELECT sum(b.count) FROM lately b WHERE b.job_name = j.name) THEN false
          ELSE coalesce(q.max_running > (SELECT coalesce(sum(b.count), 0) FROM lately b
                                         WHERE b.queue = q.name), true) END
    UNION ALL
    SELECT 'parked', s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, NULL,
           'it is parked no_runner, and a live runner has its queue and its handler'
    FROM {schema}.schedules s
    JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.parked = 'no_runner' AND j.name NOT IN (SELECT f.job_name FROM fresh f)
      AND EXISTS (SELECT FROM sweeping r
                  WHERE s.queue = ANY (r.queues) AND (j.handler IN ('command', 'sql', 'http')
                                                      OR j.target ->> 'python' = ANY (r.handlers)))
$$;
COMMENT ON FUNCTION {schema}_internal.present_violations() IS 'Lists violations in the present state: over_limit (of queues), stale, parked.';
REVOKE EXECUTE ON FUNCTION {schema}_internal.recent_violations(), {schema}_internal.present_violations() FROM PUBLIC;

CREATE OR REPLACE VIEW {schema}.accepted_violations AS
SELECT a.id, a.kind, a.job_name, a.scope_kind, a.scope_id, a.plan_time, a.through_plan_time,
       a.execution_id, a.reason, a.accepted_by, a.accepted_at, a.withdrawn_by, a.withdrawn_at
FROM {schema}.acceptances a;
COMMENT ON VIEW {schema}.accepted_violations IS 'Accepted violations, with the reason. A violation with this kind, scope and execution, at one of these plan_times, does not make verify fail.';
COMMENT ON COLUMN {schema}.accepted_violations.id IS 'Id of the acceptance, the argument of withdraw_acceptance().';
COMMENT ON COLUMN {schema}.accepted_violations.kind IS 'Kind of the violation.';
COMMENT ON COLUMN {schema}.accepted_violations.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.accepted_violations.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.accepted_violations.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.accepted_violations.plan_time IS 'First plan_time for which the violation is accepted.';
COMMENT ON COLUMN {schema}.accepted_violations.through_plan_time IS 'Last plan_time for which it is accepted.';
COMMENT ON COLUMN {schema}.accepted_violations.execution_id IS 'Execution that the violation names; NULL: none.';
COMMENT ON COLUMN {schema}.accepted_violations.reason IS 'Why it is accepted.';
COMMENT ON COLUMN {schema}.accepted_violations.accepted_by IS 'The person who accepted it.';
COMMENT ON COLUMN {schema}.accepted_violations.accepted_at IS 'When it was accepted.';
COMMENT ON COLUMN {schema}.accepted_violations.withdrawn_by IS 'The person who withdrew the acceptance.';
COMMENT ON COLUMN {schema}.accepted_violations.withdrawn_at IS 'When the acceptance was withdrawn; NULL: it holds.';

CREATE OR REPLACE VIEW {schema}.violations AS
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
FROM (SELECT r.* FROM {schema}_internal.recent_violations() r
      UNION ALL
      SELECT p.* FROM {schema}_internal.present_violations() p) v
WHERE NOT EXISTS (
    SELECT FROM {schema}.acceptances a
    WHERE (a.kind, a.job_name, a.scope_kind, a.scope_id) = (v.kind, v.job_name, v.scope_kind, v.scope_id)
      AND v.plan_time BETWEEN a.plan_time AND a.through_plan_time
      AND a.execution_id IS NOT DISTINCT FROM v.execution_id AND a.withdrawn_at IS NULL);
COMMENT ON VIEW {schema}.violations IS 'Broken promises that SQL alone can find, in plan_times of the last 7 days and in the present state. Normally empty. cronledger verify finds the others. Accepted violations are listed in accepted_violations instead.';
COMMENT ON COLUMN {schema}.violations.kind IS 'doubled (ran and skipped, or skipped twice), early (started before due_at), overlapping, over_limit, attempts (beyond max_attempts, or a token used twice), unknown_end (run again although the end of an attempt is unknown and the job was not reentrant), stale (RUNNING long after its lease ended, and no runner sweeps), parked (the reason for parking no longer applies). over_limit of a queue is also listed after its max_running was lowered, until the RUNNING executions have ended.';
COMMENT ON COLUMN {schema}.violations.job_name IS 'The job; NULL: it concerns a queue.';
COMMENT ON COLUMN {schema}.violations.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.violations.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.violations.plan_time IS 'Nominal instant of the firing; with parked the next one.';
COMMENT ON COLUMN {schema}.violations.execution_id IS 'Id of the execution; NULL: it concerns none.';
COMMENT ON COLUMN {schema}.violations.detail IS 'The violation as a sentence.';

-- Without history, so that a page may read it at any time.
CREATE OR REPLACE VIEW {schema}.present_violations AS
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
FROM {schema}_internal.present_violations() v
WHERE NOT EXISTS (
    SELECT FROM {schema}.acceptances a
    WHERE (a.kind, a.job_name, a.scope_kind, a.scope_id) = (v.kind, v.job_name, v.scope_kind, v.scope_id)
      AND v.plan_time BETWEEN a.plan_time AND a.through_plan_time
      AND a.execution_id IS NOT DISTINCT FROM v.execution_id AND a.withdrawn_at IS NULL);
COMMENT ON VIEW {schema}.present_violations IS 'The violations of the present state: over_limit (of queues), stale, parked. The view violations has these too, and those of the last 7 days.';
COMMENT ON COLUMN {schema}.present_violations.kind IS 'over_limit (more RUNNING executions of a queue than its max_running; also after it was lowered, until they have ended), stale (RUNNING long after its lease ended, and no runner sweeps), parked (the reason for parking no longer applies).';
COMMENT ON COLUMN {schema}.present_violations.job_name IS 'The job; NULL: it concerns a queue.';
COMMENT ON COLUMN {schema}.present_violations.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.present_violations.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.present_violations.plan_time IS 'Nominal instant of the firing; with parked the next one.';
COMMENT ON COLUMN {schema}.present_violations.execution_id IS 'Id of the execution; NULL: it concerns none.';
COMMENT ON COLUMN {schema}.present_violations.detail IS 'The violation as a sentence.';
