-- The ledger's tables. Words and rules: docs/architecture.md.
-- Key columns are COLLATE "C": the order in which rows are locked must not depend on a locale.

-- The two clocks. STABLE and inlined, so that indexes serve; VOLATILE for what is read after a lock
-- wait, when statement_timestamp() is as old as the wait was long. Nothing else reads a clock.
CREATE FUNCTION {schema}.db_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT statement_timestamp()';
CREATE FUNCTION {schema}.db_clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT clock_timestamp()';

CREATE TABLE {schema}.queues (
    name          text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
    max_running   integer CHECK (max_running >= 1),
    paused_at     timestamptz,
    paused_by     text,
    paused_reason text,
    CHECK (paused_at IS NOT NULL OR (paused_by IS NULL AND paused_reason IS NULL))
);
COMMENT ON TABLE {schema}.queues IS 'Queues with a limit or a pause; a queue without a row has neither.';
COMMENT ON COLUMN {schema}.queues.name IS 'What jobs.queue and a runner''s queues name.';
COMMENT ON COLUMN {schema}.queues.max_running IS 'Executions of this queue RUNNING at once, over all replicas; NULL: no limit.';
COMMENT ON COLUMN {schema}.queues.paused_at IS 'Since when nothing of this queue starts; NULL: not paused.';
COMMENT ON COLUMN {schema}.queues.paused_by IS 'Who paused it.';
COMMENT ON COLUMN {schema}.queues.paused_reason IS 'Why it is paused.';

CREATE TABLE {schema}.jobs (
    name                text COLLATE "C" PRIMARY KEY
                        CHECK (length(name) BETWEEN 1 AND 200 AND name !~ '[[:cntrl:]]'),
    revision            bigint NOT NULL DEFAULT 1,
    schedule            text CHECK (length(schedule) <= 256),
    timezone            text NOT NULL DEFAULT 'UTC',
    day_or              boolean NOT NULL DEFAULT true,
    dst_gap             text NOT NULL DEFAULT 'shift' CHECK (dst_gap IN ('shift', 'skip')),
    dst_fold            text NOT NULL DEFAULT 'first' CHECK (dst_fold IN ('first', 'both')),
    schedule_delay      interval NOT NULL DEFAULT '0' CHECK (schedule_delay >= '0'),
    jitter              interval NOT NULL DEFAULT '0' CHECK (jitter >= '0'),
    starts_at           timestamptz,
    ends_at             timestamptz,
    grace               interval NOT NULL DEFAULT '60 s' CHECK (grace >= '0'),
    catch_up            text NOT NULL DEFAULT 'latest' CHECK (catch_up IN ('skip', 'latest', 'all')),
    catch_up_window     interval NOT NULL DEFAULT '1 day' CHECK (catch_up_window >= '0'),
    catch_up_limit      integer NOT NULL DEFAULT 100 CHECK (catch_up_limit BETWEEN 1 AND 10000),
    overlap             text NOT NULL DEFAULT 'skip'
                        CHECK (overlap IN ('skip', 'wait', 'allow', 'replace')),
    max_running         integer CHECK (max_running >= 1),
    queue               text COLLATE "C" NOT NULL DEFAULT 'default'
                        CHECK (length(queue) BETWEEN 1 AND 200),
    handler             text NOT NULL
                        CHECK (handler IN ('python', 'command', 'sql', 'http', 'external')),
    target              jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(target) = 'object'),
    payload             jsonb,
    run_timeout         interval NOT NULL DEFAULT '1 h' CHECK (run_timeout > '0'),
    stale_timeout       interval NOT NULL DEFAULT '60 s' CHECK (stale_timeout >= '3 s'),
    allow_stale_reentry boolean NOT NULL DEFAULT false,
    max_attempts        integer NOT NULL DEFAULT 1 CHECK (max_attempts BETWEEN 1 AND 10000),
    retry_backoff       interval[] NOT NULL DEFAULT '{1 m, 5 m, 15 m}'
                        CHECK (cardinality(retry_backoff) >= 1),
    retry_jitter        double precision NOT NULL DEFAULT 0 CHECK (retry_jitter BETWEEN 0 AND 1),
    scope_kind          text COLLATE "C" NOT NULL DEFAULT 'global'
                        CHECK (length(scope_kind) BETWEEN 1 AND 200),
    scopes              text[],
    description         text,
    source              text,
    deploy              bigint,
    paused_at           timestamptz,
    paused_by           text,
    paused_reason       text,
    paused_until        timestamptz,
    retired_at          timestamptz,
    edited_by           text,
    spec_error          text,
    CONSTRAINT catch_up_all_needs_overlap CHECK (NOT (catch_up = 'all' AND overlap = 'skip')),
    CONSTRAINT paused_columns CHECK (paused_at IS NOT NULL
        OR (paused_by IS NULL AND paused_reason IS NULL AND paused_until IS NULL)),
    CONSTRAINT scopes_need_a_kind CHECK (scopes IS NULL OR scope_kind <> 'global'),
    -- What a replica could not read would stop it for every job.
    CONSTRAINT at_most_a_century CHECK (interval '36525 days' >= ALL (retry_backoff)
        AND greatest(schedule_delay, jitter, grace, catch_up_window, run_timeout, stale_timeout)
            <= interval '36525 days'),
    CONSTRAINT years_of_four_digits CHECK (
        least(starts_at, ends_at, paused_at, paused_until, retired_at) >= '1000-01-01Z'
        AND greatest(starts_at, ends_at, paused_at, paused_until, retired_at) < '9999-01-01Z')
);
COMMENT ON TABLE {schema}.jobs IS 'Definitions: name, schedule, handler, policies. INSERT and UPDATE are enough to add or edit a job; every edit is appended to job_revisions.';
COMMENT ON COLUMN {schema}.jobs.name IS 'Identity of the job.';
COMMENT ON COLUMN {schema}.jobs.revision IS 'Counts the edits, pauses, resumes, retirements; set by a trigger.';
COMMENT ON COLUMN {schema}.jobs.schedule IS 'Cron text of five fields, or six with seconds first, @hourly and the like, @every 90s; NULL: runs only when triggered or enqueued.';
COMMENT ON COLUMN {schema}.jobs.timezone IS 'Zone whose wall clock the schedule means.';
COMMENT ON COLUMN {schema}.jobs.day_or IS 'true: day of month or day of week as in Debian''s cron; false: both must match.';
COMMENT ON COLUMN {schema}.jobs.dst_gap IS 'A fixed time swallowed by a gap: shift (right after it) or skip.';
COMMENT ON COLUMN {schema}.jobs.dst_fold IS 'A fixed time that occurs twice: first pass only, or both.';
COMMENT ON COLUMN {schema}.jobs.schedule_delay IS 'Starts this long after plan_time.';
COMMENT ON COLUMN {schema}.jobs.jitter IS 'Spreads starts over this long; the share of a plan_time is a hash that every replica agrees on.';
COMMENT ON COLUMN {schema}.jobs.starts_at IS 'No plan_time before this instant.';
COMMENT ON COLUMN {schema}.jobs.ends_at IS 'No plan_time after this instant.';
COMMENT ON COLUMN {schema}.jobs.grace IS 'How late the newest plan_time may start unquestioned; older ones were missed.';
COMMENT ON COLUMN {schema}.jobs.catch_up IS 'What becomes of missed plan_times: skip, latest, all.';
COMMENT ON COLUMN {schema}.jobs.catch_up_window IS 'What is missed for longer than this never runs.';
COMMENT ON COLUMN {schema}.jobs.catch_up_limit IS 'With catch_up = all: at most this many missed plan_times run, the newest.';
COMMENT ON COLUMN {schema}.jobs.overlap IS 'What a due plan_time does while its (job, scope) is RUNNING: skip, wait, allow, replace.';
COMMENT ON COLUMN {schema}.jobs.max_running IS 'Executions RUNNING at once over all scopes and replicas; NULL: no limit.';
COMMENT ON COLUMN {schema}.jobs.queue IS 'Which runners take it.';
COMMENT ON COLUMN {schema}.jobs.handler IS 'What kind of thing runs: python, command, sql, http, external.';
COMMENT ON COLUMN {schema}.jobs.target IS 'What runs: {"function": …}, {"argv": […]} or {"shell": …} with env and cwd, {"statement": …}, {"url": …}.';
COMMENT ON COLUMN {schema}.jobs.payload IS 'JSON handed to the handler.';
COMMENT ON COLUMN {schema}.jobs.run_timeout IS 'An attempt is stopped after this.';
COMMENT ON COLUMN {schema}.jobs.stale_timeout IS 'Length of the lease; renewed every third of it.';
COMMENT ON COLUMN {schema}.jobs.allow_stale_reentry IS 'Reentrant: a stale lease may be stolen and the work run again.';
COMMENT ON COLUMN {schema}.jobs.max_attempts IS 'Attempts of one plan_time in all.';
COMMENT ON COLUMN {schema}.jobs.retry_backoff IS 'Wait before attempt 2, 3, …; the last one repeats.';
COMMENT ON COLUMN {schema}.jobs.retry_jitter IS 'Share of the backoff added at random, 0 to 1.';
COMMENT ON COLUMN {schema}.jobs.scope_kind IS 'What the scopes of this job are; global: one scope, global/global.';
COMMENT ON COLUMN {schema}.jobs.scopes IS 'The scope_ids when they are fixed; NULL with another kind than global: a scope provider answers them.';
COMMENT ON COLUMN {schema}.jobs.description IS 'For people.';
COMMENT ON COLUMN {schema}.jobs.source IS 'Which file or App declared it; NULL: SQL.';
COMMENT ON COLUMN {schema}.jobs.deploy IS 'Deploy of the source when it was last applied.';
COMMENT ON COLUMN {schema}.jobs.paused_at IS 'Since when nothing of it starts; NULL: not paused.';
COMMENT ON COLUMN {schema}.jobs.paused_by IS 'Who paused it.';
COMMENT ON COLUMN {schema}.jobs.paused_reason IS 'Why it is paused.';
COMMENT ON COLUMN {schema}.jobs.paused_until IS 'When the pause ends by itself; NULL: when resumed.';
COMMENT ON COLUMN {schema}.jobs.retired_at IS 'Since when it plans no more; NULL: it plans.';
COMMENT ON COLUMN {schema}.jobs.edited_by IS 'Who made the last edit; copied to job_revisions.requested_by.';
COMMENT ON COLUMN {schema}.jobs.spec_error IS 'Why it cannot be planned; cleared by the next edit.';

CREATE TABLE {schema}.job_revisions (
    job_name       text COLLATE "C" NOT NULL,
    revision       bigint NOT NULL,
    effective_from timestamptz NOT NULL,
    state          text NOT NULL CHECK (state IN ('active', 'paused', 'retired')),
    paused_until   timestamptz,
    definition     jsonb NOT NULL,
    requested_by   text,
    reason         text,
    PRIMARY KEY (job_name, revision)
);
COMMENT ON TABLE {schema}.job_revisions IS 'History of every job, appended by a trigger on jobs. Planner and verify read history from here and only from here.';
COMMENT ON COLUMN {schema}.job_revisions.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.job_revisions.revision IS 'jobs.revision after the edit.';
COMMENT ON COLUMN {schema}.job_revisions.effective_from IS 'plan_times after this instant belong to this revision, until the next one''s. Never goes back within a job.';
COMMENT ON COLUMN {schema}.job_revisions.state IS 'active, paused or retired from effective_from on.';
COMMENT ON COLUMN {schema}.job_revisions.paused_until IS 'With state paused: when the pause ends by itself.';
COMMENT ON COLUMN {schema}.job_revisions.definition IS 'The row of jobs as it was.';
COMMENT ON COLUMN {schema}.job_revisions.requested_by IS 'Who asked for it.';
COMMENT ON COLUMN {schema}.job_revisions.reason IS 'Why it was paused, as who paused it said.';

CREATE TABLE {schema}.schedules (
    job_name          text COLLATE "C" NOT NULL,
    scope_kind        text COLLATE "C" NOT NULL,
    scope_id          text COLLATE "C" NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    planned_through   timestamptz NOT NULL,
    planned_revision  bigint NOT NULL,
    next_plan_time    timestamptz,
    next_due_at       timestamptz,
    parked            text CHECK (parked IN ('paused', 'waiting', 'limit', 'no_runner',
                                             'spec_error', 'retired', 'ended', 'unscheduled')),
    input_watermark   bigint,
    success_watermark bigint,
    retired_at        timestamptz,
    returned_at       timestamptz,
    created_at        timestamptz NOT NULL DEFAULT {schema}.db_now(),
    PRIMARY KEY (job_name, scope_kind, scope_id),
    CHECK ((next_due_at IS NULL) = (parked IS NOT NULL)),
    CHECK (retired_at IS NOT NULL OR returned_at IS NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.05, fillfactor = 90);
CREATE INDEX schedules_due ON {schema}.schedules (queue, next_due_at) WHERE next_due_at IS NOT NULL;
CREATE INDEX schedules_dirty ON {schema}.schedules (job_name, scope_kind, scope_id)
    WHERE coalesce(input_watermark > success_watermark, input_watermark IS NOT NULL);
CREATE INDEX schedules_parked ON {schema}.schedules (parked, job_name, next_plan_time)
    WHERE parked IN ('waiting', 'limit', 'no_runner', 'spec_error');
COMMENT ON TABLE {schema}.schedules IS 'One row per (job, scope): where planning stands.';
COMMENT ON COLUMN {schema}.schedules.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.schedules.scope_kind IS 'What the scope is: jobs.scope_kind.';
COMMENT ON COLUMN {schema}.schedules.scope_id IS 'Which one it is.';
COMMENT ON COLUMN {schema}.schedules.queue IS 'Copy of jobs.queue, so that the due index serves one queue.';
COMMENT ON COLUMN {schema}.schedules.planned_through IS 'The cursor: every plan_time up to it is an execution or lies in a skip. Only grows.';
COMMENT ON COLUMN {schema}.schedules.planned_revision IS 'Revision in force at the cursor; with later ones in job_revisions the cursor stands for this one only.';
COMMENT ON COLUMN {schema}.schedules.next_plan_time IS 'The first plan_time behind the cursor, as far as it is known.';
COMMENT ON COLUMN {schema}.schedules.next_due_at IS 'When a claim has to look at this row again; NULL when parked.';
COMMENT ON COLUMN {schema}.schedules.parked IS 'Why the row is out of the due index; NULL: it is in.';
COMMENT ON COLUMN {schema}.schedules.input_watermark IS 'Newest input that was pushed at this scope. Only grows.';
COMMENT ON COLUMN {schema}.schedules.success_watermark IS 'Input up to which the work has succeeded.';
COMMENT ON COLUMN {schema}.schedules.retired_at IS 'Since when this scope plans no more; NULL: it plans.';
COMMENT ON COLUMN {schema}.schedules.returned_at IS 'When a retired scope came back; both are cleared once the gap is recorded as a skip.';
COMMENT ON COLUMN {schema}.schedules.created_at IS 'When the scope appeared; its history starts here.';

CREATE SEQUENCE {schema}.execution_id AS bigint;

CREATE TABLE {schema}.executions (
    job_name            text COLLATE "C" NOT NULL,
    scope_kind          text COLLATE "C" NOT NULL,
    scope_id            text COLLATE "C" NOT NULL,
    plan_time           timestamptz NOT NULL,
    id                  bigint NOT NULL DEFAULT nextval('{schema}.execution_id'),
    status              text NOT NULL
                        CHECK (status IN ('PENDING', 'RUNNING', 'SUCCESS', 'FAILED', 'CANCELLED')),
    trigger             text NOT NULL
                        CHECK (trigger IN ('schedule', 'manual', 'backfill', 'enqueue')),
    revision            bigint NOT NULL,
    queue               text COLLATE "C" NOT NULL,
    due_at              timestamptz NOT NULL,
    payload             jsonb,
    group_id            uuid,
    enqueue_key         text COLLATE "C" CHECK (length(enqueue_key) <= 200),
    attempt             integer NOT NULL CHECK (attempt >= 0),
    max_attempts        integer NOT NULL CHECK (max_attempts >= 1),
    next_attempt_at     timestamptz,
    runner_id           text,
    lease_token         uuid,
    heartbeat_at        timestamptz,
    stale_after         timestamptz,
    started_at          timestamptz,
    finished_at         timestamptz,
    duration_ms         bigint,
    rows_affected       bigint,
    result              jsonb,
    result_taken_at     timestamptz,
    output              text,
    error_code          text,
    error_msg           text CHECK (length(error_msg) <= 4000),
    attempts            jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(attempts) = 'array'),
    watermark           bigint,
    cancel_requested_at timestamptz,
    cancel_requested_by text,
    requested_by        text,
    created_at          timestamptz NOT NULL DEFAULT {schema}.db_now(),
    updated_at          timestamptz NOT NULL DEFAULT {schema}.db_now(),
    CONSTRAINT uq_execution PRIMARY KEY (job_name, scope_kind, scope_id, plan_time),
    CONSTRAINT attempts_bounded CHECK (attempt <= max_attempts),
    CONSTRAINT pending_columns CHECK (status <> 'PENDING' OR (
        next_attempt_at IS NOT NULL AND next_attempt_at = due_at AND runner_id IS NULL
        AND lease_token IS NULL AND stale_after IS NULL AND finished_at IS NULL)),
    CONSTRAINT running_columns CHECK (status <> 'RUNNING' OR (
        runner_id IS NOT NULL AND lease_token IS NOT NULL AND heartbeat_at IS NOT NULL
        AND stale_after IS NOT NULL AND started_at IS NOT NULL AND attempt >= 1
        AND next_attempt_at IS NULL AND finished_at IS NULL)),
    CONSTRAINT success_columns CHECK (status <> 'SUCCESS' OR (
        lease_token IS NOT NULL AND started_at IS NOT NULL AND finished_at IS NOT NULL
        AND duration_ms IS NOT NULL AND next_attempt_at IS NULL)),
    CONSTRAINT failed_columns CHECK (status <> 'FAILED' OR (
        error_code IS NOT NULL AND finished_at IS NOT NULL)),
    CONSTRAINT cancelled_columns CHECK (status <> 'CANCELLED' OR (
        finished_at IS NOT NULL AND next_attempt_at IS NULL))
) PARTITION BY RANGE (plan_time);
CREATE INDEX executions_id ON {schema}.executions (id);
CREATE INDEX executions_running ON {schema}.executions (job_name, scope_kind, scope_id, plan_time)
    WHERE status = 'RUNNING';
CREATE INDEX executions_again ON {schema}.executions (job_name, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL;
CREATE INDEX executions_waiting ON {schema}.executions
    (job_name, scope_kind, scope_id, enqueue_key, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX executions_superseded ON {schema}.executions (job_name, scope_kind, scope_id)
    WHERE status = 'FAILED' AND next_attempt_at IS NOT NULL AND enqueue_key IS NOT NULL;
CREATE INDEX executions_covered ON {schema}.executions (job_name, scope_kind, scope_id, watermark)
    WHERE status = 'SUCCESS' AND watermark IS NOT NULL;
CREATE INDEX executions_group ON {schema}.executions (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX executions_results ON {schema}.executions (queue, finished_at)
    WHERE result IS NOT NULL AND result_taken_at IS NULL AND finished_at IS NOT NULL
      AND next_attempt_at IS NULL;
CREATE INDEX executions_failed ON {schema}.executions (finished_at) WHERE status = 'FAILED';
COMMENT ON TABLE {schema}.executions IS 'The ledger: one row per plan_time that ran or is to run. The row is the lock, the lease and the audit record. Partitioned by plan_time; maintain_partitions() makes and drops partitions.';
COMMENT ON COLUMN {schema}.executions.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.executions.scope_kind IS 'What the scope is.';
COMMENT ON COLUMN {schema}.executions.scope_id IS 'Which one it is.';
COMMENT ON COLUMN {schema}.executions.plan_time IS 'Nominal UTC instant of this firing; unchanged by retries.';
COMMENT ON COLUMN {schema}.executions.id IS 'What people type. Use it as idempotency key for effects outside this database.';
COMMENT ON COLUMN {schema}.executions.status IS 'PENDING, RUNNING, SUCCESS, FAILED, CANCELLED.';
COMMENT ON COLUMN {schema}.executions.trigger IS 'What asked for it: schedule, manual, backfill, enqueue.';
COMMENT ON COLUMN {schema}.executions.revision IS 'Revision of the job that this plan_time belongs to.';
COMMENT ON COLUMN {schema}.executions.queue IS 'Queue of the job when the row was made.';
COMMENT ON COLUMN {schema}.executions.due_at IS 'plan_time + schedule_delay + jitter: when it may start.';
COMMENT ON COLUMN {schema}.executions.payload IS 'JSON handed to the handler.';
COMMENT ON COLUMN {schema}.executions.group_id IS 'Executions that are followed as one.';
COMMENT ON COLUMN {schema}.executions.enqueue_key IS 'Key it was enqueued with: one waits at most. Empty: pushed by a watermark alone. NULL: nothing is merged with it.';
COMMENT ON COLUMN {schema}.executions.attempt IS 'Counts the claims; 0: never claimed.';
COMMENT ON COLUMN {schema}.executions.max_attempts IS 'Copied from the job when the row was made; one more for each attempt that a drain gave back.';
COMMENT ON COLUMN {schema}.executions.next_attempt_at IS 'PENDING: due_at. FAILED: when it is retried, NULL means never. Otherwise NULL.';
COMMENT ON COLUMN {schema}.executions.runner_id IS 'Runner that holds the lease or held the last one.';
COMMENT ON COLUMN {schema}.executions.lease_token IS 'The right to write: random, new with every claim; kept by terminal rows.';
COMMENT ON COLUMN {schema}.executions.heartbeat_at IS 'Last renewal of the lease.';
COMMENT ON COLUMN {schema}.executions.stale_after IS 'End of the lease.';
COMMENT ON COLUMN {schema}.executions.started_at IS 'When the last attempt was claimed.';
COMMENT ON COLUMN {schema}.executions.finished_at IS 'When the last attempt ended.';
COMMENT ON COLUMN {schema}.executions.duration_ms IS 'How long the handler ran, by its runner''s monotonic clock.';
COMMENT ON COLUMN {schema}.executions.rows_affected IS 'As the handler reported it.';
COMMENT ON COLUMN {schema}.executions.result IS 'What the handler returned.';
COMMENT ON COLUMN {schema}.executions.result_taken_at IS 'When a consumer took the result.';
COMMENT ON COLUMN {schema}.executions.output IS 'Tail of what a command wrote.';
COMMENT ON COLUMN {schema}.executions.error_code IS 'Why it failed, in one word; with SUCCESS: why the result could not be stored.';
COMMENT ON COLUMN {schema}.executions.error_msg IS 'The same in sentences, at most 4,000 characters.';
COMMENT ON COLUMN {schema}.executions.attempts IS 'How earlier attempts ended and who held them: attempt, runner_id, lease_token, started_at, last_seen, ended_at, error_code, error_msg.';
COMMENT ON COLUMN {schema}.executions.watermark IS 'Input that this execution covers: from its claim on what was pushed until then, unless its worker says something else; NULL: none.';
COMMENT ON COLUMN {schema}.executions.cancel_requested_at IS 'When somebody asked for the end of this execution.';
COMMENT ON COLUMN {schema}.executions.cancel_requested_by IS 'Who asked for it.';
COMMENT ON COLUMN {schema}.executions.requested_by IS 'Who asked for this execution; NULL for the schedule.';
COMMENT ON COLUMN {schema}.executions.created_at IS 'When the row was made.';
COMMENT ON COLUMN {schema}.executions.updated_at IS 'Last write other than a heartbeat.';

CREATE TABLE {schema}.skips (
    job_name          text COLLATE "C" NOT NULL,
    scope_kind        text COLLATE "C" NOT NULL,
    scope_id          text COLLATE "C" NOT NULL,
    from_plan_time    timestamptz NOT NULL,
    through_plan_time timestamptz NOT NULL,
    count             bigint NOT NULL CHECK (count >= 1),
    reason            text NOT NULL
                      CHECK (reason IN ('overlap', 'superseded', 'missed', 'paused', 'retired')),
    blocked_by        bigint,
    revision          bigint NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT {schema}.db_now(),
    PRIMARY KEY (job_name, scope_kind, scope_id, from_plan_time)
);
COMMENT ON TABLE {schema}.skips IS 'plan_times that did not run, as ranges with a reason. Extended in place while reason, revision and neighbourhood hold.';
COMMENT ON COLUMN {schema}.skips.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.skips.scope_kind IS 'What the scope is.';
COMMENT ON COLUMN {schema}.skips.scope_id IS 'Which one it is.';
COMMENT ON COLUMN {schema}.skips.from_plan_time IS 'First plan_time of the range.';
COMMENT ON COLUMN {schema}.skips.through_plan_time IS 'Last plan_time of the range.';
COMMENT ON COLUMN {schema}.skips.count IS 'How many plan_times the range holds.';
COMMENT ON COLUMN {schema}.skips.reason IS 'overlap, superseded (a newer one ran), missed, paused, retired.';
COMMENT ON COLUMN {schema}.skips.blocked_by IS 'Execution id that was RUNNING, with reason overlap.';
COMMENT ON COLUMN {schema}.skips.revision IS 'Revision that the plan_times belong to.';
COMMENT ON COLUMN {schema}.skips.created_at IS 'When the range was begun.';

CREATE TABLE {schema}.runners (
    id           text COLLATE "C" PRIMARY KEY,
    host         text NOT NULL,
    pid          integer NOT NULL,
    version      text NOT NULL,
    state        text NOT NULL CHECK (state IN ('running', 'draining', 'stopped')),
    queues       text[] NOT NULL,
    slots        integer NOT NULL CHECK (slots >= 0),
    running      integer NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL DEFAULT {schema}.db_now(),
    heartbeat_at timestamptz NOT NULL DEFAULT {schema}.db_now(),
    stale_after  timestamptz NOT NULL,
    timeline     integer,
    clock_skew   interval NOT NULL DEFAULT '0',
    fingerprint  jsonb NOT NULL DEFAULT '{}',
    handlers     text[] NOT NULL DEFAULT '{}',
    diagnostics  jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE {schema}.runners IS 'Daemon processes. A row that is not renewed is reaped a day later.';
COMMENT ON COLUMN {schema}.runners.id IS 'Name of the runner: host-pid unless configured, with a number after it where a live runner has that name.';
COMMENT ON COLUMN {schema}.runners.host IS 'Host it runs on.';
COMMENT ON COLUMN {schema}.runners.pid IS 'Its process id there.';
COMMENT ON COLUMN {schema}.runners.version IS 'Version of cronledger.';
COMMENT ON COLUMN {schema}.runners.state IS 'running, draining, stopped.';
COMMENT ON COLUMN {schema}.runners.queues IS 'Queues that it takes from.';
COMMENT ON COLUMN {schema}.runners.slots IS 'How many executions it runs at once.';
COMMENT ON COLUMN {schema}.runners.running IS 'How many it ran at the last heartbeat.';
COMMENT ON COLUMN {schema}.runners.started_at IS 'When it registered.';
COMMENT ON COLUMN {schema}.runners.heartbeat_at IS 'When it was last seen.';
COMMENT ON COLUMN {schema}.runners.stale_after IS 'Not seen by then: dead.';
COMMENT ON COLUMN {schema}.runners.timeline IS 'Timeline of the server that the last heartbeat was written on; set by a trigger.';
COMMENT ON COLUMN {schema}.runners.clock_skew IS 'Its wall clock minus the database''s; for people, nothing is decided by it.';
COMMENT ON COLUMN {schema}.runners.fingerprint IS 'Versions of Python, croniter and the time zone data.';
COMMENT ON COLUMN {schema}.runners.handlers IS 'Python functions that it has.';
COMMENT ON COLUMN {schema}.runners.diagnostics IS 'How it was at the last heartbeat: executions, ticks, lag, lost leases, database errors; what /diagnostics answers, with the twenty oldest executions.';

CREATE TABLE {schema}.sources (
    name       text COLLATE "C" PRIMARY KEY,
    deploy     bigint,
    applied_at timestamptz NOT NULL DEFAULT {schema}.db_now(),
    applied_by text
);
COMMENT ON TABLE {schema}.sources IS 'Files and Apps that were applied; an older deploy does not overwrite a newer one.';
COMMENT ON COLUMN {schema}.sources.name IS 'jobs.source.';
COMMENT ON COLUMN {schema}.sources.deploy IS 'Ordered version of the deployment that was applied last; NULL: none was given.';
COMMENT ON COLUMN {schema}.sources.applied_at IS 'When it was applied.';
COMMENT ON COLUMN {schema}.sources.applied_by IS 'Who applied it.';

CREATE TABLE {schema}.identity (
    singleton         boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    system_identifier bigint NOT NULL,
    database_oid      oid NOT NULL,
    timeline          integer NOT NULL,
    recorded_at       timestamptz NOT NULL DEFAULT {schema}.db_now(),
    recorded_by       text NOT NULL DEFAULT session_user
);
COMMENT ON TABLE {schema}.identity IS 'Which database this ledger belongs to; a restored or cloned one differs.';
COMMENT ON COLUMN {schema}.identity.singleton IS 'There is one row.';
COMMENT ON COLUMN {schema}.identity.system_identifier IS 'pg_control_system().system_identifier.';
COMMENT ON COLUMN {schema}.identity.database_oid IS 'pg_database.oid.';
COMMENT ON COLUMN {schema}.identity.timeline IS 'Timeline that the server wrote; a failover moves it along.';
COMMENT ON COLUMN {schema}.identity.recorded_at IS 'When it was recorded.';
COMMENT ON COLUMN {schema}.identity.recorded_by IS 'Who made the ledger, or accepted this database.';
INSERT INTO {schema}.identity (system_identifier, database_oid, timeline)
SELECT (SELECT system_identifier FROM pg_control_system()),
       (SELECT oid FROM pg_database WHERE datname = current_database()),
       ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer;
