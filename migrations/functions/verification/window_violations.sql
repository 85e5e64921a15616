-- Windows are compared with each other, and with the table windows, whose constraints prevent gaps and overlaps.
-- As in history_violations: no CTE and no volatile function, so that the planner takes the text into the query.
CREATE OR REPLACE FUNCTION {schema}_internal.window_violations(first timestamptz)
RETURNS TABLE (kind text, job_name text, scope_kind text, scope_id text, plan_time timestamptz,
               execution_id bigint, detail text)
LANGUAGE sql STABLE AS $$
    SELECT 'window'::text, e.job_name::text, e.scope_kind::text, e.scope_id::text, e.plan_time, e.id,
           CASE WHEN e.previous < e.window_start
                THEN format('its window begins at %s, and the time since %s, where the last one ended, is left out',
                            e.window_start, e.previous)
                WHEN e.previous > e.window_start
                THEN format('its window begins at %s, and the time until %s had been processed',
                            e.window_start, e.previous)
                ELSE format('its window from %s is missing in windows', e.window_start) END
    FROM (SELECT x.*, lag(x.plan_time) OVER (PARTITION BY x.job_name, x.scope_kind, x.scope_id
                                             ORDER BY x.plan_time) AS previous
          FROM {schema}.verify_executions x
          WHERE x.status = 'SUCCESS' AND x.window_start IS NOT NULL AND x.plan_time >= first
            AND x.job_name IN (SELECT h.job_name FROM {schema}.job_history h
                               WHERE (h.definition ->> 'windows')::boolean)) e
    LEFT JOIN {schema}.windows w
        ON (w.job_name, w.scope_kind, w.scope_id, w.window_end, w.window_start)
         = (e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.window_start)
    WHERE e.previous <> e.window_start OR (w.window_end IS NULL
        AND e.plan_time > coalesce({schema}.pruned_through(), '-infinity'))
    UNION ALL
    SELECT 'window', w.job_name, w.scope_kind, w.scope_id, w.window_end, w.execution_id,
           format('windows has one from %s to %s, and no execution of this plan_time succeeded with it',
                  w.window_start, w.window_end)
    FROM {schema}.windows w
    LEFT JOIN {schema}.verify_executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.window_start, e.status)
         = (w.job_name, w.scope_kind, w.scope_id, w.window_end, w.window_start, 'SUCCESS')
    WHERE e.id IS NULL AND w.window_end >= first AND w.window_end > coalesce({schema}.pruned_through(), '-infinity')
    UNION ALL
    SELECT 'window', e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id,
           format('it succeeded without a window, and its job had windows when it started at %s', e.started_at)
    FROM {schema}.verify_executions e
    CROSS JOIN LATERAL (
        SELECT h.definition FROM {schema}.job_history h
        WHERE h.job_name = e.job_name AND h.effective_from <= e.started_at
        ORDER BY h.revision DESC LIMIT 1) r
    WHERE e.status = 'SUCCESS' AND e.window_start IS NULL AND e.trigger <> 'enqueue' AND e.plan_time >= first
      AND e.job_name IN (SELECT h.job_name FROM {schema}.job_history h
                         WHERE (h.definition ->> 'windows')::boolean)
      AND (r.definition ->> 'windows')::boolean
      -- An attempt that was stolen may be older than the windows of its job.
      AND NOT e.attempts @> '[{"error_code": "runner_crashed"}]'
$$;
COMMENT ON FUNCTION {schema}_internal.window_violations(timestamptz) IS 'Lists executions with plan_time from this instant on whose window is wrong: it overlaps that of another SUCCESS of its scope, leaves a gap, or is missing.';
REVOKE EXECUTE ON FUNCTION {schema}_internal.window_violations(timestamptz) FROM PUBLIC;
