-- Deadlines of jobs. NULL by default, which a definition leaves out (10_jobs.sql), so that the history of a job
-- without them and code that does not know them find no change. Texts, because a wall time is not a duration;
-- 09_values.sql checks them.
ALTER TABLE {schema}.jobs
    ADD COLUMN start_by text,
    ADD COLUMN finish_by text,
    ADD COLUMN expect_duration text;
COMMENT ON COLUMN {schema}.jobs.start_by IS 'Deadline of the start: a wall time in the zone of the job, such as 06:00, or a duration after plan_time, such as 15m. NULL: none.';
COMMENT ON COLUMN {schema}.jobs.finish_by IS 'Deadline of the success, as start_by; NULL: none.';
COMMENT ON COLUMN {schema}.jobs.expect_duration IS 'An attempt that runs for longer than this duration is a breach; NULL: none.';

-- Missed deadlines, and what is needed to find them (functions/84_deadlines.sql).
CREATE TABLE {schema}.deadline_cursors (
    job_name text COLLATE "C" PRIMARY KEY,
    through  timestamptz NOT NULL,
    next_at  timestamptz
);
CREATE INDEX deadline_cursors_next ON {schema}.deadline_cursors (next_at) WHERE next_at IS NOT NULL;
COMMENT ON TABLE {schema}.deadline_cursors IS 'Jobs that have deadlines, or had them since the cursor.';
COMMENT ON COLUMN {schema}.deadline_cursors.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.deadline_cursors.through IS 'The deadlines of plan_times up to this instant are in deadlines, or are judged. Only grows.';
COMMENT ON COLUMN {schema}.deadline_cursors.next_at IS 'When the deadlines of later plan_times have to be computed: at the first of them, or after an edit. NULL: after the next edit.';

CREATE TABLE {schema}.manual_deadlines (
    job_name   text COLLATE "C" NOT NULL,
    scope_kind text COLLATE "C" NOT NULL,
    scope_id   text COLLATE "C" NOT NULL,
    plan_time  timestamptz NOT NULL,
    revision   bigint NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (job_name, scope_kind, scope_id, plan_time)
);
CREATE INDEX manual_deadlines_created ON {schema}.manual_deadlines (created_at);
COMMENT ON TABLE {schema}.manual_deadlines IS 'Manual executions whose deadlines are to be computed. Written by trigger().';
COMMENT ON COLUMN {schema}.manual_deadlines.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.manual_deadlines.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.manual_deadlines.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.manual_deadlines.plan_time IS 'plan_time of the execution.';
COMMENT ON COLUMN {schema}.manual_deadlines.revision IS 'Revision of the job, whose deadlines apply.';
COMMENT ON COLUMN {schema}.manual_deadlines.created_at IS 'When the execution was created, from which its deadlines count.';

CREATE TABLE {schema}.deadlines (
    job_name   text COLLATE "C" NOT NULL,
    scope_kind text COLLATE "C" NOT NULL,
    scope_id   text COLLATE "C" NOT NULL,
    plan_time  timestamptz NOT NULL,
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('start_by', 'finish_by', 'expect_duration')),
    revision   bigint NOT NULL,
    deadline   timestamptz,
    expected   interval,
    month      date NOT NULL,
    look_at    timestamptz NOT NULL,
    PRIMARY KEY (job_name, scope_kind, scope_id, plan_time, kind),
    CHECK ((kind = 'expect_duration') = (expected IS NOT NULL)),
    CHECK ((kind = 'expect_duration') = (deadline IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deadlines_look ON {schema}.deadlines (look_at);
COMMENT ON TABLE {schema}.deadlines IS 'Deadlines that are not judged yet. A row is deleted when its deadline is judged.';
COMMENT ON COLUMN {schema}.deadlines.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.deadlines.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.deadlines.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.deadlines.plan_time IS 'The plan_time.';
COMMENT ON COLUMN {schema}.deadlines.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.deadlines.revision IS 'Revision of the job that declares the deadline.';
COMMENT ON COLUMN {schema}.deadlines.deadline IS 'The deadline; NULL for expect_duration, which counts from the start of an attempt.';
COMMENT ON COLUMN {schema}.deadlines.expected IS 'With expect_duration: how long an attempt may run.';
COMMENT ON COLUMN {schema}.deadlines.month IS 'First day of the month of the plan_time in the zone of the job.';
COMMENT ON COLUMN {schema}.deadlines.look_at IS 'When the deadline can be judged, or has to be looked at again.';

CREATE SEQUENCE {schema}.breach_id AS bigint;
COMMENT ON SEQUENCE {schema}.breach_id IS 'Numbers breaches.';
CREATE TABLE {schema}.deadline_breaches (
    id           bigint NOT NULL DEFAULT nextval('{schema}.breach_id'),
    job_name     text COLLATE "C" NOT NULL,
    scope_kind   text COLLATE "C" NOT NULL,
    scope_id     text COLLATE "C" NOT NULL,
    plan_time    timestamptz NOT NULL,
    kind         text COLLATE "C" NOT NULL CHECK (kind IN ('start_by', 'finish_by', 'expect_duration')),
    execution_id bigint,
    revision     bigint NOT NULL,
    deadline     timestamptz NOT NULL,
    month        date NOT NULL,
    breached_at  timestamptz NOT NULL,
    closed_at    timestamptz,
    look_at      timestamptz,
    recorded_xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (job_name, scope_kind, scope_id, plan_time, kind),
    CHECK ((closed_at IS NULL) = (look_at IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Not unique, as that of operator_actions.
CREATE INDEX deadline_breaches_id ON {schema}.deadline_breaches (id);
CREATE INDEX deadline_breaches_plan_time ON {schema}.deadline_breaches (plan_time);
CREATE INDEX deadline_breaches_recorded ON {schema}.deadline_breaches (recorded_xact);
CREATE INDEX deadline_breaches_open ON {schema}.deadline_breaches (look_at) WHERE closed_at IS NULL;
COMMENT ON TABLE {schema}.deadline_breaches IS 'Missed deadlines, one row each. Read through the view breaches.';
COMMENT ON COLUMN {schema}.deadline_breaches.id IS 'Id of the breach.';
COMMENT ON COLUMN {schema}.deadline_breaches.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.deadline_breaches.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.deadline_breaches.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.deadline_breaches.plan_time IS 'The plan_time.';
COMMENT ON COLUMN {schema}.deadline_breaches.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.deadline_breaches.execution_id IS 'The execution; NULL: there was none.';
COMMENT ON COLUMN {schema}.deadline_breaches.revision IS 'Revision of the job that declares the deadline.';
COMMENT ON COLUMN {schema}.deadline_breaches.deadline IS 'The deadline that was missed.';
COMMENT ON COLUMN {schema}.deadline_breaches.month IS 'First day of the month of the plan_time in the zone of the job.';
COMMENT ON COLUMN {schema}.deadline_breaches.breached_at IS 'When the breach was recorded.';
COMMENT ON COLUMN {schema}.deadline_breaches.closed_at IS 'When the deadline was met late; NULL: it was not. Not after the deadline: it was met, but the COMMIT became visible after the breach was recorded, so it is none.';
COMMENT ON COLUMN {schema}.deadline_breaches.look_at IS 'When to look again whether it was met late; NULL: it was.';
COMMENT ON COLUMN {schema}.deadline_breaches.recorded_xact IS 'Transaction that recorded the breach. raise_alerts() finds new breaches by it.';

CREATE TABLE {schema}.deadline_months (
    job_name   text COLLATE "C" NOT NULL,
    scope_kind text COLLATE "C" NOT NULL,
    scope_id   text COLLATE "C" NOT NULL,
    month      date NOT NULL,
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('start_by', 'finish_by', 'expect_duration')),
    met        bigint NOT NULL CHECK (met >= 0),
    met_late   bigint NOT NULL CHECK (met_late >= 0),
    missed     bigint NOT NULL CHECK (missed >= 0),
    PRIMARY KEY (job_name, scope_kind, scope_id, month, kind)
);
COMMENT ON TABLE {schema}.deadline_months IS 'Judged deadlines of each month. Counted when a deadline is judged, in the same transaction, and kept after the executions are pruned. Read through the view compliance.';
COMMENT ON COLUMN {schema}.deadline_months.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.deadline_months.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.deadline_months.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.deadline_months.month IS 'First day of the month of the plan_times in the zone of the job.';
COMMENT ON COLUMN {schema}.deadline_months.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.deadline_months.met IS 'Number of deadlines that were met.';
COMMENT ON COLUMN {schema}.deadline_months.met_late IS 'Number of deadlines that were missed, and met later.';
COMMENT ON COLUMN {schema}.deadline_months.missed IS 'Number of deadlines that were missed, and not met since.';
