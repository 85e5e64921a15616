-- Sums of the ended executions of each (job, scope) and hour, for questions that are too large for a query over
-- executions. The sweeper counts an hour when it is over, and again whenever one of its executions has changed.
-- It finds changes by the transaction that made them. Numbers of transactions are assigned before the changes
-- become visible, whatever the clock does, so that everything below the oldest open transaction has been seen.
ALTER TABLE {schema}.executions ADD COLUMN changed_xact xid8;
COMMENT ON COLUMN {schema}.executions.changed_xact IS 'Transaction that last ended this execution, or gave it another attempt after its end; NULL: it has not ended. By it the sweeper finds the hours to count again.';
CREATE INDEX executions_changed ON {schema}.executions (changed_xact) WHERE changed_xact IS NOT NULL;

CREATE TABLE {schema}.rolled_up_hours (
    job_name        text COLLATE "C" NOT NULL,
    scope_kind      text COLLATE "C" NOT NULL,
    scope_id        text COLLATE "C" NOT NULL,
    hour            timestamptz NOT NULL,
    success         integer NOT NULL,
    failed          integer NOT NULL,
    cancelled       integer NOT NULL,
    retries         integer NOT NULL,
    durations       integer NOT NULL,
    duration_ms_sum bigint NOT NULL,
    duration_ms_min bigint,
    duration_ms_max bigint,
    duration_counts integer[] NOT NULL,
    starts          integer NOT NULL,
    late_ms_sum     bigint NOT NULL,
    late_ms_min     bigint,
    late_ms_max     bigint,
    late_counts     integer[] NOT NULL,
    rolled_up_at    timestamptz NOT NULL,
    PRIMARY KEY (job_name, scope_kind, scope_id, hour)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX rolled_up_hours_hour ON {schema}.rolled_up_hours (hour);
COMMENT ON TABLE {schema}.rolled_up_hours IS 'Sums of the ended executions of each (job, scope) and hour of plan_time. An hour without ended executions has no row. Written by roll_up_hours(), read through the view execution_hours.';
COMMENT ON COLUMN {schema}.rolled_up_hours.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.rolled_up_hours.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.rolled_up_hours.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.rolled_up_hours.hour IS 'Beginning of the hour (UTC) in which the plan_times lie.';
COMMENT ON COLUMN {schema}.rolled_up_hours.success IS 'Number of executions that are SUCCESS.';
COMMENT ON COLUMN {schema}.rolled_up_hours.failed IS 'Number of executions that are FAILED and will not be retried.';
COMMENT ON COLUMN {schema}.rolled_up_hours.cancelled IS 'Number of executions that are CANCELLED.';
COMMENT ON COLUMN {schema}.rolled_up_hours.retries IS 'Number of attempts of these executions beyond the first.';
COMMENT ON COLUMN {schema}.rolled_up_hours.durations IS 'Number of executions with a duration. It is that of the last attempt.';
COMMENT ON COLUMN {schema}.rolled_up_hours.duration_ms_sum IS 'Sum of the durations, in milliseconds.';
COMMENT ON COLUMN {schema}.rolled_up_hours.duration_ms_min IS 'Shortest duration, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.rolled_up_hours.duration_ms_max IS 'Longest duration, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.rolled_up_hours.duration_counts IS 'Number of durations in each bucket of estimated_quantile(), up to the last bucket that has any.';
COMMENT ON COLUMN {schema}.rolled_up_hours.starts IS 'Number of executions whose lateness is known: fired by the schedule, and started once.';
COMMENT ON COLUMN {schema}.rolled_up_hours.late_ms_sum IS 'Sum of their latenesses (started_at - due_at), in milliseconds.';
COMMENT ON COLUMN {schema}.rolled_up_hours.late_ms_min IS 'Least lateness, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.rolled_up_hours.late_ms_max IS 'Greatest lateness, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.rolled_up_hours.late_counts IS 'Number of latenesses in each bucket of estimated_quantile(), up to the last bucket that has any.';
COMMENT ON COLUMN {schema}.rolled_up_hours.rolled_up_at IS 'When the hour was last counted.';

CREATE TABLE {schema}.changed_hours (
    hour       timestamptz NOT NULL,
    job_name   text COLLATE "C" NOT NULL,
    scope_kind text COLLATE "C" NOT NULL,
    scope_id   text COLLATE "C" NOT NULL,
    changes    bigint NOT NULL,
    PRIMARY KEY (hour, job_name, scope_kind, scope_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE {schema}.changed_hours IS 'Hours of a (job, scope) that are to be counted, because an execution has changed. Written by mark_changed_hours(), emptied by roll_up_hours().';
COMMENT ON COLUMN {schema}.changed_hours.hour IS 'Beginning of the hour (UTC).';
COMMENT ON COLUMN {schema}.changed_hours.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.changed_hours.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.changed_hours.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.changed_hours.changes IS 'Number of changed executions, by which the size of the hour is estimated. It may be too great.';

CREATE TABLE {schema}.roll_up_state (
    singleton       boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    marked_before   xid8 NOT NULL DEFAULT pg_current_xact_id(),
    marked_at       timestamptz,
    complete_before timestamptz
);
COMMENT ON TABLE {schema}.roll_up_state IS 'How far the roll-up of hours is. One row.';
COMMENT ON COLUMN {schema}.roll_up_state.singleton IS 'Always true: the table has one row.';
COMMENT ON COLUMN {schema}.roll_up_state.marked_before IS 'Hours changed by transactions with a lower number are marked in changed_hours, or are counted.';
COMMENT ON COLUMN {schema}.roll_up_state.marked_at IS 'When all changes that were committed had last been marked; NULL: never.';
COMMENT ON COLUMN {schema}.roll_up_state.complete_before IS 'Hours before this instant are counted with all changes up to marked_at; NULL: none.';
INSERT INTO {schema}.roll_up_state DEFAULT VALUES;
