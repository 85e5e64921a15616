-- The runs of verify, so that people see when the ledger was last checked, and with what result.
CREATE SEQUENCE {schema}.verification_id AS bigint;
COMMENT ON SEQUENCE {schema}.verification_id IS 'Numbers verification_runs.';
CREATE TABLE {schema}.verification_runs (
    id              bigint PRIMARY KEY DEFAULT nextval('{schema}.verification_id'),
    job_name        text COLLATE "C",
    from_plan_time  timestamptz,
    to_plan_time    timestamptz,
    requested_by    text NOT NULL,
    version         text NOT NULL,
    started_at      timestamptz NOT NULL,
    finished_at     timestamptz,
    outcome         text CHECK (outcome IN ('finished', 'interrupted')),
    error           text CHECK (length(error) <= 4000),
    checked_after   timestamptz,
    checked_through timestamptz,
    schedules       bigint,
    plan_times      bigint,
    executions      bigint,
    skips           bigint,
    behind          bigint,
    violations      bigint,
    accepted        bigint,
    kinds           jsonb,
    CONSTRAINT ended_columns CHECK ((finished_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT counted_columns CHECK (outcome IS NULL OR num_nulls(
        schedules, plan_times, executions, skips, behind, violations, accepted, kinds) = 0)
);
CREATE INDEX verification_runs_kept ON {schema}.verification_runs ((job_name IS NULL), id);
COMMENT ON TABLE {schema}.verification_runs IS 'Runs of `cronledger verify`: the newest 1,000 of all jobs, and the newest 1,000 of one job. Written by begin_verification() and end_verification().';
COMMENT ON COLUMN {schema}.verification_runs.id IS 'Id of the run.';
COMMENT ON COLUMN {schema}.verification_runs.job_name IS 'The job that was checked; NULL: all jobs.';
COMMENT ON COLUMN {schema}.verification_runs.from_plan_time IS 'First plan_time of the requested range; NULL: the beginning of the kept history.';
COMMENT ON COLUMN {schema}.verification_runs.to_plan_time IS 'Last plan_time of the requested range; NULL: the planning cursor.';
COMMENT ON COLUMN {schema}.verification_runs.requested_by IS 'The person or program that ran verify.';
COMMENT ON COLUMN {schema}.verification_runs.version IS 'Version of cronledger that ran verify.';
COMMENT ON COLUMN {schema}.verification_runs.started_at IS 'When the run began.';
COMMENT ON COLUMN {schema}.verification_runs.finished_at IS 'When the run ended; NULL: it has not ended, or its process was killed.';
COMMENT ON COLUMN {schema}.verification_runs.outcome IS 'finished: the range was checked. interrupted: the run was stopped or failed, so the counts are those until then. NULL: the run has not ended, or its process was killed.';
COMMENT ON COLUMN {schema}.verification_runs.error IS 'With outcome interrupted: the reason.';
COMMENT ON COLUMN {schema}.verification_runs.checked_after IS 'The checked plan_times lie after this instant; NULL: none were checked.';
COMMENT ON COLUMN {schema}.verification_runs.checked_through IS 'Last instant up to which plan_times were checked; NULL: none were checked.';
COMMENT ON COLUMN {schema}.verification_runs.schedules IS 'Number of checked schedules.';
COMMENT ON COLUMN {schema}.verification_runs.plan_times IS 'Number of plan_times that should exist.';
COMMENT ON COLUMN {schema}.verification_runs.executions IS 'Number of executions that account for them.';
COMMENT ON COLUMN {schema}.verification_runs.skips IS 'Number of skips that account for them.';
COMMENT ON COLUMN {schema}.verification_runs.behind IS 'Number of schedules whose planning was behind.';
COMMENT ON COLUMN {schema}.verification_runs.violations IS 'Number of violations that were not accepted.';
COMMENT ON COLUMN {schema}.verification_runs.accepted IS 'Number of violations that were accepted.';
COMMENT ON COLUMN {schema}.verification_runs.kinds IS 'Number of violations that were not accepted, by kind.';
