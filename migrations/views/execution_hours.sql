CREATE OR REPLACE VIEW {schema}.execution_hours AS
SELECT r.job_name, r.scope_kind, r.scope_id, r.hour, r.success, r.failed, r.cancelled, r.retries, r.durations,
       r.duration_ms_sum, r.duration_ms_min, r.duration_ms_max,
       greatest(r.duration_ms_min, least(r.duration_ms_max,
           {schema}.estimated_quantile(r.duration_counts::bigint[], 0.5))) AS duration_ms_p50,
       greatest(r.duration_ms_min, least(r.duration_ms_max,
           {schema}.estimated_quantile(r.duration_counts::bigint[], 0.95))) AS duration_ms_p95,
       r.duration_counts, r.starts, r.late_ms_sum, r.late_ms_min, r.late_ms_max,
       greatest(r.late_ms_min, least(r.late_ms_max,
           {schema}.estimated_quantile(r.late_counts::bigint[], 0.5))) AS late_ms_p50,
       greatest(r.late_ms_min, least(r.late_ms_max,
           {schema}.estimated_quantile(r.late_counts::bigint[], 0.95))) AS late_ms_p95,
       r.late_counts, r.rolled_up_at
FROM {schema}.rolled_up_hours r;
COMMENT ON VIEW {schema}.execution_hours IS 'Sums of the ended executions of each (job, scope) and hour of plan_time, one row each. An hour is counted within about an hour after its end, and again about an hour after one of its executions has changed: see rolled_up_before().';
COMMENT ON COLUMN {schema}.execution_hours.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.execution_hours.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.execution_hours.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.execution_hours.hour IS 'Beginning of the hour (UTC) in which the plan_times lie.';
COMMENT ON COLUMN {schema}.execution_hours.success IS 'Number of executions that are SUCCESS.';
COMMENT ON COLUMN {schema}.execution_hours.failed IS 'Number of executions that are FAILED and will not be retried.';
COMMENT ON COLUMN {schema}.execution_hours.cancelled IS 'Number of executions that are CANCELLED.';
COMMENT ON COLUMN {schema}.execution_hours.retries IS 'Number of attempts of these executions beyond the first.';
COMMENT ON COLUMN {schema}.execution_hours.durations IS 'Number of executions with a duration. It is that of the last attempt.';
COMMENT ON COLUMN {schema}.execution_hours.duration_ms_sum IS 'Sum of the durations, in milliseconds.';
COMMENT ON COLUMN {schema}.execution_hours.duration_ms_min IS 'Shortest duration, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.execution_hours.duration_ms_max IS 'Longest duration, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.execution_hours.duration_counts IS 'Number of durations in each bucket of estimated_quantile(), up to the last bucket that has any.';
COMMENT ON COLUMN {schema}.execution_hours.starts IS 'Number of executions whose lateness is known: fired by the schedule, started once, and without a wait for required jobs.';
COMMENT ON COLUMN {schema}.execution_hours.late_ms_sum IS 'Sum of their latenesses (started_at - due_at), in milliseconds.';
COMMENT ON COLUMN {schema}.execution_hours.late_ms_min IS 'Least lateness, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.execution_hours.late_ms_max IS 'Greatest lateness, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.execution_hours.late_counts IS 'Number of latenesses in each bucket of estimated_quantile(), up to the last bucket that has any.';
COMMENT ON COLUMN {schema}.execution_hours.rolled_up_at IS 'When the hour was last counted.';
COMMENT ON COLUMN {schema}.execution_hours.duration_ms_p50 IS 'Estimated median of the durations; see estimated_quantile().';
COMMENT ON COLUMN {schema}.execution_hours.duration_ms_p95 IS 'Estimated 95th percentile of the durations.';
COMMENT ON COLUMN {schema}.execution_hours.late_ms_p50 IS 'Estimated median of the latenesses.';
COMMENT ON COLUMN {schema}.execution_hours.late_ms_p95 IS 'Estimated 95th percentile of the latenesses.';
