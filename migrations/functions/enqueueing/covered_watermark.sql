CREATE OR REPLACE FUNCTION {schema}_internal.covered_watermark(scope {schema}.schedules) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN greatest(scope.success_watermark, (
        SELECT max(e.watermark) FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id)
          AND e.status = 'SUCCESS' AND e.watermark IS NOT NULL));
END $$;
COMMENT ON FUNCTION {schema}_internal.covered_watermark({schema}.schedules) IS 'Returns the greatest watermark of a SUCCESS of this scope; NULL: there is none.';

CREATE OR REPLACE FUNCTION {schema}_internal.has_uncovered_input(scope {schema}.schedules) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(scope.input_watermark > scope.success_watermark,
                    scope.input_watermark IS NOT NULL)
$$;
COMMENT ON FUNCTION {schema}_internal.has_uncovered_input({schema}.schedules) IS 'Returns whether the scope has input beyond success_watermark, that is, whether it is dirty.';

CREATE OR REPLACE FUNCTION {schema}_internal.covering_execution(scope {schema}.schedules) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT e.id FROM {schema}.executions e
         WHERE (e.job_name, e.scope_kind, e.scope_id)
             = (scope.job_name, scope.scope_kind, scope.scope_id)
           AND e.status = 'RUNNING' AND e.watermark >= scope.input_watermark
           AND e.cancel_requested_at IS NULL LIMIT 1),
        (SELECT e.id FROM {schema}.executions e
         WHERE (e.job_name, e.scope_kind, e.scope_id)
             = (scope.job_name, scope.scope_kind, scope.scope_id)
           AND e.next_attempt_at IS NOT NULL AND e.enqueue_key = '' ORDER BY e.plan_time DESC LIMIT 1));
END $$;
COMMENT ON FUNCTION {schema}_internal.covering_execution({schema}.schedules) IS 'Returns the execution that covers all input of this scope once it succeeds: one that is RUNNING since the newest input, or one that waits.';
