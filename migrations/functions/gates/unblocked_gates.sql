CREATE OR REPLACE FUNCTION {schema}_internal.unblocked_gates(most bigint)
RETURNS SETOF {schema}.gates LANGUAGE sql STABLE ROWS 10 AS $$
    SELECT g.*
    FROM (SELECT g.* FROM {schema}.gates g
          WHERE g.upstream_job IS NOT NULL AND (g.check_at IS NULL OR g.check_at > {schema}.db_now()) LIMIT most) g
    WHERE CASE WHEN g.upstream_plan_time IS NULL THEN EXISTS (
              SELECT FROM {schema}.schedules s
              WHERE (s.job_name, s.scope_kind, s.scope_id) = (g.upstream_job, g.upstream_kind, g.upstream_id)
                AND {schema}_internal.is_planned(s, g.plan_time) OFFSET 0)
          ELSE EXISTS (
              SELECT FROM {schema}.executions e
              WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
                  = (g.upstream_job, g.upstream_kind, g.upstream_id, g.upstream_plan_time)
                AND e.status = (SELECT 'SUCCESS') OFFSET 0) END
$$;
COMMENT ON FUNCTION {schema}_internal.unblocked_gates(bigint) IS 'Lists the gates that were not made due to be checked although their required job has gone on, because of a crash after the change. most: how many gates are considered; NULL: all.';

CREATE OR REPLACE FUNCTION {schema}_internal.is_planned(one {schema}.schedules, plan_time timestamptz)
RETURNS boolean LANGUAGE sql STABLE AS $$
    -- An edit changes nothing up to planned_through, but may change what follows it.
    SELECT one.planned_through >= plan_time OR NOT one.woken AND CASE one.parked
        WHEN 'spec_error' THEN false
        WHEN 'ended' THEN true
        ELSE coalesce(one.next_plan_time > plan_time, false) END
$$;
COMMENT ON FUNCTION {schema}_internal.is_planned({schema}.schedules, timestamptz) IS 'Returns whether every plan_time of this schedule up to this one has an execution, or lies in a skip or a planned skip.';
