CREATE OR REPLACE VIEW {schema}.planned_skip_status AS
SELECT p.id, p.job_name, p.scope_kind, p.scope_id, p.from_plan_time, p.through_plan_time, p.covered_through, p.reason,
       p.requested_by, p.created_at, p.withdrawn_at, p.withdrawn_by,
       CASE WHEN p.covered_through < p.from_plan_time THEN 'withdrawn'
            WHEN p.from_plan_time > {schema}.db_now() THEN 'planned'
            WHEN p.covered_through >= {schema}.db_now() THEN 'begun'
            ELSE 'over' END AS state,
       (SELECT coalesce(sum(k.count), 0)::bigint FROM {schema}.skips k
        WHERE k.job_name = p.job_name AND k.reason = 'operator' AND k.detail = p.reason
          AND k.from_plan_time <= p.covered_through AND k.through_plan_time >= p.from_plan_time
          AND (p.scope_id IS NULL OR (k.scope_kind, k.scope_id) = (p.scope_kind, p.scope_id))) AS skipped,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = p.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = p.job_name) AS labels
FROM {schema}.planned_skips p;
COMMENT ON VIEW {schema}.planned_skip_status IS 'Planned skips, and how many plan_times each has skipped. If it is over and none was skipped, it contained no plan_time that could run.';
COMMENT ON COLUMN {schema}.planned_skip_status.id IS 'Id of the planned skip.';
COMMENT ON COLUMN {schema}.planned_skip_status.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.planned_skip_status.scope_kind IS 'Kind of the scope; NULL: all scopes of the job.';
COMMENT ON COLUMN {schema}.planned_skip_status.scope_id IS 'Id of the scope; NULL: all scopes of the job, also later ones.';
COMMENT ON COLUMN {schema}.planned_skip_status.from_plan_time IS 'The first plan_time that does not run.';
COMMENT ON COLUMN {schema}.planned_skip_status.through_plan_time IS 'The last plan_time that was not to run when the skip was planned.';
COMMENT ON COLUMN {schema}.planned_skip_status.covered_through IS 'The last plan_time that does not run: earlier than through_plan_time if the skip was withdrawn.';
COMMENT ON COLUMN {schema}.planned_skip_status.reason IS 'Why, in the words of the operator.';
COMMENT ON COLUMN {schema}.planned_skip_status.requested_by IS 'The person or program that planned it.';
COMMENT ON COLUMN {schema}.planned_skip_status.created_at IS 'When it was planned.';
COMMENT ON COLUMN {schema}.planned_skip_status.withdrawn_at IS 'When it was withdrawn; NULL: it was not.';
COMMENT ON COLUMN {schema}.planned_skip_status.withdrawn_by IS 'The person or program that withdrew it.';
COMMENT ON COLUMN {schema}.planned_skip_status.state IS 'planned: its first plan_time is to come. begun: the first one is past, and the last one is to come. over: all are past. withdrawn: it was withdrawn before the first one.';
COMMENT ON COLUMN {schema}.planned_skip_status.skipped IS 'Number of plan_times that were skipped, in all its scopes.';
COMMENT ON COLUMN {schema}.planned_skip_status.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.planned_skip_status.labels IS 'Current labels of the job; NULL or empty: it has none.';
