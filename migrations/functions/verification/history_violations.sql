-- Broken promises that SQL alone can find; `cronledger verify` finds the others.
--
-- History is judged by {schema}_internal.history_violations, which verify calls for all of it, job by job, and
-- the view for plan_times of the last 7 days: it reads the one or two partitions of executions that hold them,
-- eight times. The present state is read through the RUNNING index and the schedules that are parked, whatever
-- the size of history.
--
-- Every comparison is exact: a start is written after the ends that it waited for were committed, and
-- an edit takes effect after the claims that it waited for. Where the end of an attempt is unknown
-- (stolen, swept) it is known to have run until it was last seen, and no longer. What another scheduler ran (runner_id
-- observed) may start early or overlap, because the ledger did not start it.

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
    WHERE a.started_at < a.due_at AND a.plan_time >= first AND a.runner_id IS DISTINCT FROM 'observed'
    UNION ALL
    SELECT 'overlapping', o.job_name, o.scope_kind, o.scope_id, o.plan_time, o.id,
           format('attempt %s started at %s beside another execution of this scope, RUNNING until %s; overlap was %s',
                  o.attempt, o.started_at,
                  CASE WHEN o.busy_until = 'infinity' THEN 'this moment' ELSE o.busy_until::text END,
                  r.definition ->> 'overlap')
    FROM (SELECT a.*, max(a.ran_until) OVER (
              PARTITION BY a.job_name, a.scope_kind, a.scope_id ORDER BY a.started_at, a.id, a.attempt
              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy_until
          FROM {schema}.attempts a WHERE a.plan_time >= first AND a.runner_id IS DISTINCT FROM 'observed') o
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
                WHERE a.plan_time >= first AND a.runner_id IS DISTINCT FROM 'observed' AND a.job_name IN (
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
                 coalesce(sum(1 + a.repeats) FILTER (WHERE NOT a.is_last AND a.error_code <> 'runner_crashed'
                     AND (a.error_code IN ('shutdown', 'lease_lost', 'not_started', 'not_ready', 'not_ended') OR EXISTS (
                         SELECT FROM {schema}.job_history j WHERE j.job_name = a.job_name
                         AND (j.definition ->> 'allow_stale_reentry')::boolean))), 0) AS released,
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
               WHERE o.verb IN ('retry', 'retry_many', 'backfill')))
    UNION ALL
    SELECT 'unknown_end', a.job_name, a.scope_kind, a.scope_id, a.plan_time, a.id,
           format('the end of attempt %s (%s) is unknown, and attempt %s started at %s; the job was not reentrant',
                  a.attempt, a.error_code, a.following, a.next_start)
    FROM (SELECT b.*, lead(b.attempt) OVER w AS following, lead(b.started_at) OVER w AS next_start,
                 lead(b.runner_id) OVER w AS next_runner
          FROM {schema}.attempts b
          WHERE b.plan_time >= first AND (b.attempt > 1 OR NOT b.is_last)
          WINDOW w AS (PARTITION BY b.job_name, b.scope_kind, b.scope_id, b.plan_time ORDER BY b.attempt)) a
    CROSS JOIN LATERAL (
        SELECT h.definition FROM {schema}.job_history h
        WHERE h.job_name = a.job_name AND h.effective_from <= a.next_start
        ORDER BY h.revision DESC LIMIT 1) r
    -- retry(force => true) is a person's decision, which the audit trail has. Until 0021, requested_by had it.
    WHERE (a.error_code = 'runner_crashed' OR (
               a.error_code IN ('stale_timeout', 'not_ended') AND a.requested_by IS NULL
               AND a.id NOT IN (SELECT u.id FROM {schema}.audit o CROSS JOIN LATERAL unnest(o.execution_ids) u(id)
                   WHERE o.verb IN ('retry', 'retry_many', 'backfill'))))
      AND a.next_runner <> 'observed'  -- the end of the run was reported late, and nothing started
      AND NOT (r.definition ->> 'allow_stale_reentry')::boolean
    UNION ALL
    SELECT w.* FROM {schema}_internal.window_violations(first) w
$$;
COMMENT ON FUNCTION {schema}_internal.history_violations(timestamptz) IS 'Lists violations in executions and skips with plan_time from this instant on: doubled, early, overlapping, over_limit (of jobs), attempts, unknown_end, window.';
REVOKE EXECUTE ON FUNCTION {schema}_internal.history_violations(timestamptz) FROM PUBLIC;
