CREATE OR REPLACE VIEW {schema}.verifications AS
SELECT r.id, r.job_name, r.from_plan_time, r.to_plan_time, r.requested_by, r.version, r.started_at,
       r.finished_at, coalesce(r.outcome, 'unfinished') AS outcome, r.error, r.checked_after,
       r.checked_through, r.schedules, r.plan_times, r.executions, r.skips, r.behind, r.violations,
       r.accepted, r.kinds
FROM {schema}.verification_runs r;
COMMENT ON VIEW {schema}.verifications IS 'Recorded runs of `cronledger verify`: the newest 1,000 of all jobs, and the newest 1,000 of one job.';
COMMENT ON COLUMN {schema}.verifications.id IS 'Id of the run.';
COMMENT ON COLUMN {schema}.verifications.job_name IS 'The job that was checked; NULL: all jobs.';
COMMENT ON COLUMN {schema}.verifications.from_plan_time IS 'First plan_time of the requested range; NULL: the beginning of the kept history.';
COMMENT ON COLUMN {schema}.verifications.to_plan_time IS 'Last plan_time of the requested range; NULL: the planning cursor.';
COMMENT ON COLUMN {schema}.verifications.requested_by IS 'The person or program that ran verify.';
COMMENT ON COLUMN {schema}.verifications.version IS 'Version of cronledger that ran verify.';
COMMENT ON COLUMN {schema}.verifications.started_at IS 'When the run began.';
COMMENT ON COLUMN {schema}.verifications.finished_at IS 'When the run ended; NULL: it has not ended, or its process was killed.';
COMMENT ON COLUMN {schema}.verifications.outcome IS 'finished: the range was checked. interrupted: the run was stopped or failed, so the counts are those until then. unfinished: it is running, or its process was killed.';
COMMENT ON COLUMN {schema}.verifications.error IS 'With outcome interrupted: the reason.';
COMMENT ON COLUMN {schema}.verifications.checked_after IS 'The checked plan_times lie after this instant; NULL: none were checked.';
COMMENT ON COLUMN {schema}.verifications.checked_through IS 'Last instant up to which plan_times were checked; NULL: none were checked.';
COMMENT ON COLUMN {schema}.verifications.schedules IS 'Number of checked schedules.';
COMMENT ON COLUMN {schema}.verifications.plan_times IS 'Number of plan_times that should exist.';
COMMENT ON COLUMN {schema}.verifications.executions IS 'Number of executions that account for them.';
COMMENT ON COLUMN {schema}.verifications.skips IS 'Number of skips that account for them.';
COMMENT ON COLUMN {schema}.verifications.behind IS 'Number of schedules whose planning was behind.';
COMMENT ON COLUMN {schema}.verifications.violations IS 'Number of violations that were not accepted.';
COMMENT ON COLUMN {schema}.verifications.accepted IS 'Number of violations that were accepted.';
COMMENT ON COLUMN {schema}.verifications.kinds IS 'Number of violations that were not accepted, by kind.';
