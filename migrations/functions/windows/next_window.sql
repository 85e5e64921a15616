-- Windows of executions: jobs.windows. A window is a function of two values: it begins where the last processed window of
-- its scope ends, and ends at the plan_time. Unless overlap is allow, which jobs with windows must not have, nothing of a
-- scope succeeds between the claim of an execution and its end. So a window that is computed at each claim, under the lock
-- of the schedule, stays the same in a retry unless another execution has succeeded in between.
-- Enqueued executions have no windows, because a message must not end with the success of another one.

CREATE OR REPLACE FUNCTION {schema}_internal.next_window(job text, kind text, scope text) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT w.window_end FROM {schema}.windows w
         WHERE (w.job_name, w.scope_kind, w.scope_id) = (job, kind, scope)
         ORDER BY w.window_end DESC LIMIT 1),
        -- The job has windows since recently.
        (SELECT e.plan_time FROM {schema}.executions e
         WHERE (e.job_name, e.scope_kind, e.scope_id) = (job, kind, scope) AND e.status = 'SUCCESS'
           AND e.trigger <> 'enqueue'
         ORDER BY e.plan_time DESC LIMIT 1),
        (SELECT s.created_at FROM {schema}.schedules s
         WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope) LIMIT 1))
$$;
COMMENT ON FUNCTION {schema}_internal.next_window(text, text, text) IS 'Returns where the next window of this scope begins: at the end of its last one, or before the first one at the plan_time of the last SUCCESS, or else when the scope was created. Exact only under the lock of the schedule, in a statement of its own.';
