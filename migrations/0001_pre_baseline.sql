-- The tables of the ledger, in the order in which a reader meets them: docs/architecture.md, "Tables".
-- Columns of keys are COLLATE "C", because the order in which rows are locked must not depend on a locale.
-- triggers.sql has the triggers, which follow the functions that they call.

DO $$ BEGIN
    -- Its owner could replace functions that run with the rights of the ledger's owner.
    IF (SELECT count(DISTINCT n.nspowner) FROM pg_namespace n
        WHERE n.nspname IN ('{schema}', '{schema}_internal')) > 1 THEN
        RAISE EXCEPTION 'the schemas {schema} and {schema}_internal have different owners'
            USING HINT = 'Drop the schema {schema}_internal, or change its owner.',
                  ERRCODE = 'invalid_schema_definition';
    END IF;
END $$;

-- The two clocks. Nothing else reads a clock. Indexes can use db_now(), because it is STABLE and inlined. db_clock()
-- is for values that are read after a lock wait, when statement_timestamp() is as old as the wait was long.
CREATE FUNCTION {schema}.db_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT statement_timestamp()';
COMMENT ON FUNCTION {schema}.db_now() IS 'Returns the time of the ledger, at the start of the statement.';
CREATE FUNCTION {schema}.db_clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT clock_timestamp()';
COMMENT ON FUNCTION {schema}.db_clock() IS 'Returns the current instant of the clock of the ledger. Use it after a lock wait.';

-- Calendars

-- The dates of a calendar are written out when it is set, so that replicas with other versions of a library agree, and an
-- old day can always be explained. After a restore, the next revision gets the number of one that is lost, as with
-- job_revisions, so each has a random id.
CREATE TABLE {schema}.calendars (
    name     text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200 AND name !~ '[[:cntrl:]]'),
    revision bigint NOT NULL,
    source   text
);
COMMENT ON TABLE {schema}.calendars IS 'Calendars that jobs name, each with its current revision. Written by set_calendar().';
COMMENT ON COLUMN {schema}.calendars.name IS 'Name of the calendar, as in jobs.calendar.';
COMMENT ON COLUMN {schema}.calendars.revision IS 'The current revision, whose dates are in calendar_revisions.';
COMMENT ON COLUMN {schema}.calendars.source IS 'File or App that declared the calendar; NULL: SQL.';

CREATE TABLE {schema}.calendar_revisions (
    calendar_name text COLLATE "C" NOT NULL,
    revision      bigint NOT NULL,
    id            uuid NOT NULL DEFAULT gen_random_uuid(),
    created_at    timestamptz NOT NULL,
    first         date NOT NULL,
    through       date NOT NULL,
    excluded      jsonb NOT NULL CHECK (jsonb_typeof(excluded) = 'object'),
    definition    jsonb CHECK (jsonb_typeof(definition) = 'object'),
    requested_by  text NOT NULL,
    PRIMARY KEY (calendar_name, revision),
    CHECK (first <= through AND first >= '1000-01-01' AND through < '9999-01-01')
);
COMMENT ON TABLE {schema}.calendar_revisions IS 'History of every calendar, written by set_calendar(). The planner and verify read the dates of calendars only from here. Rows are only added.';
COMMENT ON COLUMN {schema}.calendar_revisions.calendar_name IS 'The calendar.';
COMMENT ON COLUMN {schema}.calendar_revisions.revision IS 'Number of the revision. job_revisions.definition names it as calendar_revision.';
COMMENT ON COLUMN {schema}.calendar_revisions.id IS 'Random. After a restore a new revision gets the number of a lost one, but never its id, by which replicas recognize a revision.';
COMMENT ON COLUMN {schema}.calendar_revisions.created_at IS 'When it was set. The revisions of its jobs have the instant from which it counts.';
COMMENT ON COLUMN {schema}.calendar_revisions.first IS 'The first date that the revision describes. Earlier dates are not excluded.';
COMMENT ON COLUMN {schema}.calendar_revisions.through IS 'The last date that the revision describes. A job has no plan_time on a later date.';
COMMENT ON COLUMN {schema}.calendar_revisions.excluded IS 'Every excluded date from first to through, with the name of the day, such as {"2027-12-25": "Christmas Day"}.';
COMMENT ON COLUMN {schema}.calendar_revisions.definition IS 'What was declared, such as weekend and holidays, for people; NULL: dates only.';
COMMENT ON COLUMN {schema}.calendar_revisions.requested_by IS 'The person or program that set it.';

-- Jobs

-- Policies that are NULL by default are not part of a definition (job_definition), so that the history of a job without
-- them, and code that does not know them, find no change. start_by, finish_by and expect_duration are texts, because a
-- wall time is not a duration.
CREATE TABLE {schema}.jobs (
    name                text COLLATE "C" PRIMARY KEY
                        CHECK (length(name) BETWEEN 1 AND 200 AND name !~ '[[:cntrl:]]'),
    revision            bigint NOT NULL DEFAULT 1,
    schedule            text CHECK (length(schedule) <= 256),
    timezone            text NOT NULL DEFAULT 'UTC',
    calendar            text COLLATE "C",
    on_excluded         text NOT NULL DEFAULT 'skip' CHECK (on_excluded IN ('skip', 'next', 'previous')),
    calendar_revision   bigint,
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
    windows             boolean NOT NULL DEFAULT false,
    max_running         integer CHECK (max_running >= 1),
    queue               text COLLATE "C" NOT NULL DEFAULT 'default'
                        CHECK (length(queue) BETWEEN 1 AND 200),
    "on"                text[] CHECK (cardinality("on") BETWEEN 1 AND 50),
    every               text[],
    handler             text NOT NULL
                        CHECK (handler IN ('python', 'command', 'sql', 'http', 'external', 'observed')),
    observed            boolean NOT NULL DEFAULT false,
    adopted_at          timestamptz,
    returned_at         timestamptz,
    target              jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(target) = 'object'),
    payload             jsonb,
    payload_schema      jsonb CHECK (jsonb_typeof(payload_schema) = 'object'),
    run_timeout         interval DEFAULT '1 h' CHECK (run_timeout > '0'),
    stale_timeout       interval NOT NULL DEFAULT '60 s' CHECK (stale_timeout >= '3 s'),
    allow_stale_reentry boolean NOT NULL DEFAULT false,
    max_attempts        integer NOT NULL DEFAULT 1 CHECK (max_attempts BETWEEN 1 AND 10000),
    retry_backoff       interval[] NOT NULL DEFAULT '{1 m, 5 m, 15 m}'
                        CHECK (cardinality(retry_backoff) >= 1),
    retry_jitter        double precision NOT NULL DEFAULT 0 CHECK (retry_jitter BETWEEN 0 AND 1),
    retry_on            text[],
    never_retry_on      text[],
    not_ready_on        text[],
    not_ready_after     interval CHECK (not_ready_after BETWEEN '0' AND '36525 days'),
    requires            jsonb CHECK (jsonb_typeof(requires) = 'array'),
    after               jsonb CHECK (jsonb_typeof(after) = 'array' AND jsonb_array_length(after) = 1),
    wait_at_most        interval CHECK (wait_at_most > '0' AND wait_at_most <= interval '36525 days'),
    gate_problem        text,
    start_by            text,
    finish_by           text,
    expect_duration     text,
    scope_kind          text COLLATE "C" NOT NULL DEFAULT 'global'
                        CHECK (length(scope_kind) BETWEEN 1 AND 200),
    scopes              text[],
    description         text,
    owner               text CHECK (length(owner) BETWEEN 1 AND 200 AND owner ~ '[^[:space:]]'
                                    AND owner !~ '[[:cntrl:]]'),
    labels              jsonb CHECK (jsonb_typeof(labels) = 'object'),
    runbook             text CHECK (runbook ~ '^https?://[^[:space:]/][^[:space:]]*$'),
    notify              jsonb CHECK (jsonb_typeof(notify) = 'array'),
    ping                text,
    keep_output         interval CHECK (keep_output BETWEEN interval '1 hour' AND interval '36525 days'),
    capture_output      boolean NOT NULL DEFAULT true,
    source              text,
    deploy              bigint,
    paused_at           timestamptz,
    paused_by           text,
    paused_reason       text,
    paused_until        timestamptz,
    retired_at          timestamptz,
    edited_by           text,
    spec_error          text,
    CONSTRAINT on_excluded_needs_calendar CHECK (on_excluded = 'skip' OR calendar IS NOT NULL),
    CONSTRAINT every_cannot_be_moved CHECK (on_excluded = 'skip' OR schedule !~* '^[[:space:]]*@every'),
    CONSTRAINT requires_needs_plan_times CHECK (requires IS NULL OR schedule IS NOT NULL OR after IS NOT NULL),
    CONSTRAINT catch_up_all_needs_overlap CHECK (NOT (catch_up = 'all' AND overlap = 'skip')),
    CONSTRAINT windows_need_an_order CHECK (NOT (windows AND overlap = 'allow')),
    CONSTRAINT paused_columns CHECK (paused_at IS NOT NULL
        OR (paused_by IS NULL AND paused_reason IS NULL AND paused_until IS NULL)),
    CONSTRAINT every_has_hosts CHECK (every IS NULL OR (scope_kind = 'host' AND scopes IS NULL AND every = "on")),
    -- Its firings are planned by any replica, and hosts are known from replicas only.
    CONSTRAINT hosts_need_replicas CHECK (NOT (scope_kind = 'host' AND (observed OR handler IN ('external', 'observed')))),
    -- Another scheduler knows no gates, windows and delays.
    CONSTRAINT observed_has_plain_plan_times CHECK (NOT (observed AND (windows OR requires IS NOT NULL
        OR after IS NOT NULL OR schedule_delay > '0' OR jitter > '0'))),
    CONSTRAINT only_observed_is_adopted CHECK (observed OR (adopted_at IS NULL AND returned_at IS NULL)),
    -- No boot is known in advance, so nothing can wait for one, or be late before it.
    CONSTRAINT reboot_needs_hosts CHECK (schedule !~* '^[[:space:]]*@reboot' OR (scope_kind = 'host' AND after IS NULL
        AND requires IS NULL AND calendar IS NULL AND NOT windows AND start_by IS NULL AND finish_by IS NULL
        AND expect_duration IS NULL)),
    CONSTRAINT scopes_need_a_kind CHECK (scopes IS NULL OR scope_kind <> 'global'),
    -- A value that replicas cannot read would stop them for all jobs.
    CONSTRAINT at_most_a_century CHECK (interval '36525 days' >= ALL (retry_backoff)
        AND greatest(schedule_delay, jitter, grace, catch_up_window, run_timeout, stale_timeout)
            <= interval '36525 days'),
    CONSTRAINT years_of_four_digits CHECK (
        least(starts_at, ends_at, adopted_at, returned_at, paused_at, paused_until, retired_at) >= '1000-01-01Z'
        AND greatest(starts_at, ends_at, adopted_at, returned_at, paused_at, paused_until, retired_at) < '9999-01-01Z')
);
CREATE INDEX jobs_provided ON {schema}.jobs (name)
    WHERE scopes IS NULL AND scope_kind <> 'global' AND retired_at IS NULL;
CREATE INDEX jobs_every ON {schema}.jobs (name) WHERE every IS NOT NULL AND retired_at IS NULL;
-- Each poll of each replica reads the next end of a pause, and there may be a million jobs.
CREATE INDEX jobs_paused_until ON {schema}.jobs (paused_until) WHERE paused_until IS NOT NULL;
-- An edit of a calendar finds its jobs.
CREATE INDEX jobs_calendar ON {schema}.jobs (calendar, name) WHERE calendar IS NOT NULL;
-- An edit of a job finds the jobs that name it.
CREATE INDEX jobs_after ON {schema}.jobs USING gin (after jsonb_path_ops) WHERE after IS NOT NULL;
CREATE INDEX jobs_requires ON {schema}.jobs USING gin (requires jsonb_path_ops) WHERE requires IS NOT NULL;
-- An edit asks whether there are chains of jobs.
CREATE INDEX jobs_chained ON {schema}.jobs (name) WHERE requires IS NOT NULL OR after IS NOT NULL;
CREATE INDEX jobs_keep_output ON {schema}.jobs (name) WHERE keep_output IS NOT NULL;
CREATE INDEX jobs_notify ON {schema}.jobs (name) WHERE notify IS NOT NULL;
COMMENT ON TABLE {schema}.jobs IS 'Definitions of jobs: name, schedule, handler, policies. INSERT and UPDATE are enough to add or edit a job. Every edit is appended to job_revisions.';
COMMENT ON COLUMN {schema}.jobs.name IS 'Name of the job.';
COMMENT ON COLUMN {schema}.jobs.revision IS 'Counts the edits, pauses, resumes, retirements; set by a trigger.';
COMMENT ON COLUMN {schema}.jobs.schedule IS 'Cron text of five fields, or six with seconds first, @hourly and the like, @every 90s, @reboot; NULL: runs only when triggered or enqueued.';
COMMENT ON COLUMN {schema}.jobs.timezone IS 'Time zone of the schedule.';
COMMENT ON COLUMN {schema}.jobs.calendar IS 'Calendar whose excluded dates the job leaves out; NULL: none.';
COMMENT ON COLUMN {schema}.jobs.on_excluded IS 'What happens to a firing on an excluded date: skip it, or move it to the next or the previous date that is not excluded.';
COMMENT ON COLUMN {schema}.jobs.calendar_revision IS 'Revision of the calendar; set by a trigger. NULL: no calendar.';
COMMENT ON COLUMN {schema}.jobs.day_or IS 'true: day of month or day of week as in Debian''s cron; false: both must match.';
COMMENT ON COLUMN {schema}.jobs.dst_gap IS 'Rule for a fixed time that a clock change leaves out: shift (right after it) or skip.';
COMMENT ON COLUMN {schema}.jobs.dst_fold IS 'Rule for a fixed time that occurs twice: first (only the first pass) or both.';
COMMENT ON COLUMN {schema}.jobs.schedule_delay IS 'Starts this long after plan_time.';
COMMENT ON COLUMN {schema}.jobs.jitter IS 'Spreads starts over this long. The delay of a plan_time is derived from a hash, so that all replicas compute the same.';
COMMENT ON COLUMN {schema}.jobs.starts_at IS 'No plan_time before this instant.';
COMMENT ON COLUMN {schema}.jobs.ends_at IS 'No plan_time after this instant.';
COMMENT ON COLUMN {schema}.jobs.grace IS 'How late the newest plan_time may start before it counts as missed; older ones are missed.';
COMMENT ON COLUMN {schema}.jobs.catch_up IS 'Which missed plan_times run: skip (none), latest, all.';
COMMENT ON COLUMN {schema}.jobs.catch_up_window IS 'A plan_time that was missed longer ago than this never runs.';
COMMENT ON COLUMN {schema}.jobs.catch_up_limit IS 'With catch_up = all: at most this many missed plan_times run, the newest.';
COMMENT ON COLUMN {schema}.jobs.overlap IS 'Rule for a due plan_time while its (job, scope) is RUNNING: skip, wait, allow, replace.';
COMMENT ON COLUMN {schema}.jobs.windows IS 'Each execution has a window of time, which begins where that of the last SUCCESS of its scope ended, and ends at its plan_time.';
COMMENT ON COLUMN {schema}.jobs.max_running IS 'Executions RUNNING at once over all scopes and replicas; NULL: no limit.';
COMMENT ON COLUMN {schema}.jobs.queue IS 'Queue of the job. Runners that serve it execute the job.';
COMMENT ON COLUMN {schema}.jobs."on" IS 'Labels that a runner must have to run the job, all of them, such as {role=web} or {host=web1}; NULL: any runner. The name is a reserved word of SQL, so it needs quotes.';
COMMENT ON COLUMN {schema}.jobs.every IS 'Each plan_time runs once on every host that has these labels, all of them, such as {role=web}. It sets "on" and scope_kind. NULL: the job is not run on every host.';
COMMENT ON COLUMN {schema}.jobs.handler IS 'Kind of handler: python, command, sql, http, external, observed (another scheduler fires it).';
COMMENT ON COLUMN {schema}.jobs.observed IS 'Another scheduler fires the job until adopt() moves it to replicas, which then run its handler.';
COMMENT ON COLUMN {schema}.jobs.adopted_at IS 'Replicas fire the plan_times of an observed job from this instant on; set by adopt(). NULL: never.';
COMMENT ON COLUMN {schema}.jobs.returned_at IS 'The other scheduler fires those from this instant on again; set by adopt(). NULL: never.';
COMMENT ON COLUMN {schema}.jobs.target IS 'Target of the handler, with the keys of a file: {"python": "package.module:function"}, {"command": [list] or "shell line"} with env and cwd, {"sql": "statement"}, or the table of http: {"url": "https://…"}. {} for external.';
COMMENT ON COLUMN {schema}.jobs.payload IS 'JSON that is passed to the handler.';
COMMENT ON COLUMN {schema}.jobs.payload_schema IS 'JSON Schema of the payload, for people and forms; nothing is validated by it in SQL. NULL: any JSON.';
COMMENT ON COLUMN {schema}.jobs.run_timeout IS 'An attempt is stopped after this; NULL: it may run for any length of time while its lease is renewed.';
COMMENT ON COLUMN {schema}.jobs.stale_timeout IS 'Length of the lease; renewed every third of it.';
COMMENT ON COLUMN {schema}.jobs.allow_stale_reentry IS 'Reentrant: a stale lease may be stolen and the work run again.';
COMMENT ON COLUMN {schema}.jobs.max_attempts IS 'Attempts of one plan_time in all.';
COMMENT ON COLUMN {schema}.jobs.retry_backoff IS 'Wait before attempt 2, 3, …; the last one repeats.';
COMMENT ON COLUMN {schema}.jobs.retry_jitter IS 'Share of the backoff added at random, 0 to 1.';
COMMENT ON COLUMN {schema}.jobs.retry_on IS 'Only failures that match one of these items are retried: names of exceptions, exit statuses, HTTP statuses, SQLSTATEs, error codes. NULL or empty: all failures.';
COMMENT ON COLUMN {schema}.jobs.never_retry_on IS 'Failures that match one of these items are not retried, even if they match retry_on. NULL or empty: none.';
COMMENT ON COLUMN {schema}.jobs.not_ready_on IS 'Failures that match one of these items mean that the work cannot begin yet: the execution returns to PENDING, and the attempt does not count. The items are those of retry_on. NULL or empty: none.';
COMMENT ON COLUMN {schema}.jobs.not_ready_after IS 'How long an execution waits after a failure of not_ready_on; NULL: 1 minute.';
COMMENT ON COLUMN {schema}.jobs.requires IS 'Jobs whose plan_times must be a SUCCESS before an execution starts, such as [{"job": "extract", "scope": "same"}]. scope: same, or global, the only scope of the required job. NULL: none.';
COMMENT ON COLUMN {schema}.jobs.after IS 'The job whose plan_times this job has, and which it requires, such as [{"job": "extract", "scope": "same"}]; NULL: it has a schedule of its own, or none.';
COMMENT ON COLUMN {schema}.jobs.wait_at_most IS 'How long an execution waits for requires and after, and for a handler that is not ready; NULL: until the next plan_time.';
COMMENT ON COLUMN {schema}.jobs.gate_problem IS 'Why the job cannot wait for what it requires, such as a retired job; set by triggers. It becomes the spec_error. NULL: it can.';
COMMENT ON COLUMN {schema}.jobs.start_by IS 'Deadline of the start: a wall time in the zone of the job, such as 06:00, or a duration after plan_time, such as 15m. NULL: none.';
COMMENT ON COLUMN {schema}.jobs.finish_by IS 'Deadline of the success, as start_by; NULL: none.';
COMMENT ON COLUMN {schema}.jobs.expect_duration IS 'An attempt that runs for longer than this duration is a breach; NULL: none.';
COMMENT ON COLUMN {schema}.jobs.scope_kind IS 'Kind of the scopes of this job; global: one scope, global/global.';
COMMENT ON COLUMN {schema}.jobs.scopes IS 'The scope_ids if they are fixed; NULL with another scope_kind than global: a scope provider returns them.';
COMMENT ON COLUMN {schema}.jobs.description IS 'Description for people.';
COMMENT ON COLUMN {schema}.jobs.owner IS 'The person or team that is responsible for the job; NULL: none is declared.';
COMMENT ON COLUMN {schema}.jobs.labels IS 'Labels of the job: a flat JSON object of texts, such as {"team": "data"}. NULL or empty: none.';
COMMENT ON COLUMN {schema}.jobs.runbook IS 'URL of instructions for people, http or https, which the page and alerts of the job show; NULL: none.';
COMMENT ON COLUMN {schema}.jobs.notify IS 'Rules for alerts: a JSON array such as [{"channel": "ops", "on": ["failed", "recovered"], "after": 3, "remind": "4 hours"}]. NULL or empty: no alerts.';
COMMENT ON COLUMN {schema}.jobs.ping IS 'URL of a check with the protocol of Healthchecks, to which replicas report each attempt; NULL: none. Views leave it out, because it is the key of the check.';
COMMENT ON COLUMN {schema}.jobs.keep_output IS 'How long payload, result, output, key and messages of an execution are kept after the end of its last attempt; NULL: as long as the execution.';
COMMENT ON COLUMN {schema}.jobs.capture_output IS 'The output of the handler is stored, and shown while it runs.';
COMMENT ON COLUMN {schema}.jobs.source IS 'File or App that declared the job; NULL: SQL.';
COMMENT ON COLUMN {schema}.jobs.deploy IS 'Deploy of the source when it was last applied.';
COMMENT ON COLUMN {schema}.jobs.paused_at IS 'When the job was paused; NULL: it is not paused.';
COMMENT ON COLUMN {schema}.jobs.paused_by IS 'The person who paused it.';
COMMENT ON COLUMN {schema}.jobs.paused_reason IS 'Why it is paused.';
COMMENT ON COLUMN {schema}.jobs.paused_until IS 'When the pause ends by itself; NULL: it lasts until the job is resumed.';
COMMENT ON COLUMN {schema}.jobs.retired_at IS 'When the job was retired; NULL: it is not retired.';
COMMENT ON COLUMN {schema}.jobs.edited_by IS 'The person who made the last edit; copied to job_revisions.requested_by.';
COMMENT ON COLUMN {schema}.jobs.spec_error IS 'Why the job cannot be planned or run; cleared by the next edit.';

-- After a restore, the next edit of a job gets the number of an edit that is lost. So each revision has a random id.
CREATE TABLE {schema}.job_revisions (
    job_name       text COLLATE "C" NOT NULL,
    revision       bigint NOT NULL,
    id             uuid NOT NULL DEFAULT gen_random_uuid(),
    effective_from timestamptz NOT NULL,
    state          text NOT NULL CHECK (state IN ('active', 'paused', 'retired')),
    paused_until   timestamptz,
    definition     jsonb NOT NULL,
    requested_by   text,
    reason         text,
    PRIMARY KEY (job_name, revision)
);
COMMENT ON TABLE {schema}.job_revisions IS 'History of every job, appended by a trigger on jobs. The planner and verify read history from here only.';
COMMENT ON COLUMN {schema}.job_revisions.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.job_revisions.revision IS 'jobs.revision after the edit.';
COMMENT ON COLUMN {schema}.job_revisions.id IS 'Random. After a restore a new revision gets the number of a lost one, but never its id, by which replicas recognize a revision.';
COMMENT ON COLUMN {schema}.job_revisions.effective_from IS 'plan_times after this instant belong to this revision, until the next one''s. Never goes back within a job.';
COMMENT ON COLUMN {schema}.job_revisions.state IS 'active, paused or retired from effective_from on.';
COMMENT ON COLUMN {schema}.job_revisions.paused_until IS 'With state paused: when the pause ends by itself.';
COMMENT ON COLUMN {schema}.job_revisions.definition IS 'The row of jobs after the edit.';
COMMENT ON COLUMN {schema}.job_revisions.requested_by IS 'The person or program that requested it.';
COMMENT ON COLUMN {schema}.job_revisions.reason IS 'Reason that was given for the pause, or for the switch between schedulers.';

-- Pauses. The columns paused_* of jobs state the union of those that are in force for a job (apply_pauses).

CREATE SEQUENCE {schema}.pause_id AS bigint;
CREATE TABLE {schema}.pauses (
    id           bigint PRIMARY KEY DEFAULT nextval('{schema}.pause_id'),
    job_name     text COLLATE "C",
    queue        text COLLATE "C",
    owner        text,
    labels       jsonb CHECK (jsonb_typeof(labels) = 'object'),
    from_at      timestamptz NOT NULL,
    until_at     timestamptz,
    reason       text,
    requested_by text NOT NULL,
    created_at   timestamptz NOT NULL,
    begun_at     timestamptz,
    ended_at     timestamptz,
    ended_by     text,
    CHECK (ended_at IS NOT NULL OR ended_by IS NULL)
);
-- Each claim reads the first of these. It is empty unless a pause is planned.
CREATE INDEX pauses_planned ON {schema}.pauses (from_at) WHERE begun_at IS NULL AND ended_at IS NULL;
CREATE INDEX pauses_open ON {schema}.pauses (id) WHERE ended_at IS NULL;
CREATE INDEX pauses_job ON {schema}.pauses (job_name) WHERE job_name IS NOT NULL AND ended_at IS NULL;
COMMENT ON SEQUENCE {schema}.pause_id IS 'Numbers pauses.';
COMMENT ON TABLE {schema}.pauses IS 'Pauses of jobs: planned, in force, and over. A job is selected if every part of the selection that is not NULL matches. Read through the view pause_status.';
COMMENT ON COLUMN {schema}.pauses.id IS 'Number of the pause.';
COMMENT ON COLUMN {schema}.pauses.job_name IS 'The job that it selects; NULL: jobs of any name.';
COMMENT ON COLUMN {schema}.pauses.queue IS 'The queue whose jobs it selects; NULL: any.';
COMMENT ON COLUMN {schema}.pauses.owner IS 'The owner whose jobs it selects; NULL: any.';
COMMENT ON COLUMN {schema}.pauses.labels IS 'Labels that the jobs have, all of them; NULL: any.';
COMMENT ON COLUMN {schema}.pauses.from_at IS 'It applies to plan_times that are due at this instant or later.';
COMMENT ON COLUMN {schema}.pauses.until_at IS 'It applies to plan_times that are due up to and including this instant, and then ends; NULL: it lasts until it is ended.';
COMMENT ON COLUMN {schema}.pauses.reason IS 'Why; NULL: no reason was given.';
COMMENT ON COLUMN {schema}.pauses.requested_by IS 'The person or program that requested it.';
COMMENT ON COLUMN {schema}.pauses.created_at IS 'When it was planned.';
COMMENT ON COLUMN {schema}.pauses.begun_at IS 'When the ledger noted its jobs, soon after from_at; NULL: it has not begun.';
COMMENT ON COLUMN {schema}.pauses.ended_at IS 'When it was ended before until_at, or withdrawn before it began; NULL: neither.';
COMMENT ON COLUMN {schema}.pauses.ended_by IS 'The person or program that ended it.';

CREATE SEQUENCE {schema}.unsettled_pause_id AS bigint;
CREATE TABLE {schema}.unsettled_pauses (
    id           bigint PRIMARY KEY DEFAULT nextval('{schema}.unsettled_pause_id'),
    job_name     text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    begins       boolean NOT NULL,
    requested_by text,
    xact         xid8
);
CREATE INDEX unsettled_pauses_job ON {schema}.unsettled_pauses (job_name);
COMMENT ON SEQUENCE {schema}.unsettled_pause_id IS 'Numbers unsettled_pauses.';
COMMENT ON TABLE {schema}.unsettled_pauses IS 'Jobs whose pauses have begun or ended, and whose row does not state it yet. Claims leave these jobs out. Almost always empty.';
COMMENT ON COLUMN {schema}.unsettled_pauses.id IS 'Number of the row.';
COMMENT ON COLUMN {schema}.unsettled_pauses.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.unsettled_pauses.at IS 'The instant whose pauses the job gets.';
COMMENT ON COLUMN {schema}.unsettled_pauses.begins IS 'A planned pause begins: the revision takes effect at this instant, unless later plan_times were planned already.';
COMMENT ON COLUMN {schema}.unsettled_pauses.requested_by IS 'Who began or ended the pause: the editor of the revision.';
COMMENT ON COLUMN {schema}.unsettled_pauses.xact IS 'The transaction that settles it now; NULL: none has begun to.';

-- Schedules

-- The index of due schedules begins with the host, so that no replica reads those of other hosts.
-- Schedules that an edit woke have an index of their own, so that a claim can take some of each kind. Otherwise 100,000
-- woken ones would be planned before a job that is due each second.
CREATE TABLE {schema}.schedules (
    job_name          text COLLATE "C" NOT NULL,
    scope_kind        text COLLATE "C" NOT NULL,
    scope_id          text COLLATE "C" NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    planned_through   timestamptz NOT NULL,
    planned_revision  bigint NOT NULL,
    next_plan_time    timestamptz,
    next_due_at       timestamptz,
    parked            text CHECK (parked = ANY (
                          '{paused,waiting,limit,no_runner,spec_error,retired,ended,unscheduled,boot}')),
    woken             boolean NOT NULL DEFAULT false,
    input_watermark   bigint,
    success_watermark bigint,
    running_from      timestamptz,
    retired_at        timestamptz,
    returned_at       timestamptz,
    created_at        timestamptz NOT NULL DEFAULT {schema}.db_now(),
    CHECK ((next_due_at IS NULL) = (parked IS NOT NULL)),
    CHECK (retired_at IS NOT NULL OR returned_at IS NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.05, fillfactor = 90);
-- Not unique. An entry for a new version of a row in a unique index would visit every dead version of the same key, and
-- a session that stays idle in a transaction keeps all of them. schedule_keys is unique instead.
CREATE INDEX schedules_key ON {schema}.schedules (job_name, scope_kind, scope_id);
-- Otherwise PostgreSQL would refuse to update the table while a publication contains it.
ALTER TABLE {schema}.schedules REPLICA IDENTITY FULL;
-- The first column is the expression of scope_host(). The index also has schedules of hosts that are parked no_runner,
-- so that they are found when their host is absent.
CREATE INDEX schedules_due ON {schema}.schedules
    ((CASE scope_kind WHEN 'host' THEN scope_id ELSE '' END), queue, next_due_at)
    WHERE (next_due_at IS NOT NULL OR (parked = 'no_runner' AND scope_kind = 'host')) AND NOT woken;
-- Of all hosts: only for absent_hosts, which would otherwise read every schedule of the jobs that list hosts.
CREATE INDEX schedules_late_on_host ON {schema}.schedules (coalesce(next_due_at, next_plan_time))
    WHERE (next_due_at IS NOT NULL OR parked = 'no_runner') AND NOT woken AND scope_kind = 'host';
CREATE INDEX schedules_woken ON {schema}.schedules (queue, job_name, scope_kind, scope_id) WHERE woken;
CREATE INDEX schedules_dirty ON {schema}.schedules (job_name, scope_kind, scope_id)
    WHERE coalesce(input_watermark > success_watermark, input_watermark IS NOT NULL);
CREATE INDEX schedules_parked ON {schema}.schedules (parked, job_name, next_plan_time)
    WHERE parked IN ('waiting', 'limit', 'no_runner', 'spec_error');
COMMENT ON TABLE {schema}.schedules IS 'The state of planning, one row per (job, scope).';
COMMENT ON COLUMN {schema}.schedules.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.schedules.scope_kind IS 'Kind of the scope, as in jobs.scope_kind.';
COMMENT ON COLUMN {schema}.schedules.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.schedules.queue IS 'Copy of jobs.queue, so that the index of due rows serves one queue.';
COMMENT ON COLUMN {schema}.schedules.planned_through IS 'The cursor: every plan_time up to it has an execution or lies in a skip. It only grows.';
COMMENT ON COLUMN {schema}.schedules.planned_revision IS 'Revision in force at the cursor. If job_revisions has later ones, the cursor holds for this one only.';
COMMENT ON COLUMN {schema}.schedules.next_plan_time IS 'The first plan_time after the cursor, if it is known.';
COMMENT ON COLUMN {schema}.schedules.next_due_at IS 'When the next claim plans this row; NULL: the row is parked.';
COMMENT ON COLUMN {schema}.schedules.parked IS 'Why the row is not in the index of due rows; NULL: it is in the index.';
COMMENT ON COLUMN {schema}.schedules.woken IS 'The schedule is new, or it or its job was edited since it was last planned, so that a claim plans it even if it is not due.';
COMMENT ON COLUMN {schema}.schedules.input_watermark IS 'Newest input that was enqueued for this scope. It only grows.';
COMMENT ON COLUMN {schema}.schedules.success_watermark IS 'Input that successes have covered.';
COMMENT ON COLUMN {schema}.schedules.running_from IS 'No execution with an earlier plan_time is RUNNING, except runs of another scheduler, so that a claim does not search there; NULL: unknown.';
COMMENT ON COLUMN {schema}.schedules.retired_at IS 'When the scope was last retired, until the cursor passes its return; NULL: the scope is planned. scope_retirements has all retirements.';
COMMENT ON COLUMN {schema}.schedules.returned_at IS 'When the scope returned. Both are cleared when the cursor passes this instant.';
COMMENT ON COLUMN {schema}.schedules.created_at IS 'When the scope was created; its history starts here.';

CREATE TABLE {schema}.schedule_keys (
    job_name   text COLLATE "C" NOT NULL,
    scope_kind text COLLATE "C" NOT NULL,
    scope_id   text COLLATE "C" NOT NULL,
    PRIMARY KEY (job_name, scope_kind, scope_id)
);
COMMENT ON TABLE {schema}.schedule_keys IS 'The key of each row of schedules. A trigger of schedules writes it, and thereby prevents a second row with the same key.';
COMMENT ON COLUMN {schema}.schedule_keys.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.schedule_keys.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.schedule_keys.scope_id IS 'Id of the scope.';

-- A row of schedules has room for one retirement, and a scope may retire and return several times before a replica
-- plans it.
CREATE TABLE {schema}.scope_retirements (
    job_name    text COLLATE "C" NOT NULL,
    scope_kind  text COLLATE "C" NOT NULL,
    scope_id    text COLLATE "C" NOT NULL,
    retired_at  timestamptz NOT NULL,
    returned_at timestamptz CHECK (returned_at > retired_at),
    PRIMARY KEY (job_name, scope_kind, scope_id, retired_at)
);
CREATE INDEX scope_retirements_ended ON {schema}.scope_retirements (returned_at) WHERE returned_at IS NOT NULL;
COMMENT ON TABLE {schema}.scope_retirements IS 'When each scope was retired: one row per retirement. A scope that never retired has none. The planner and verify read the retirements of scopes only from here. Rows that ended before the executions that are kept are pruned.';
COMMENT ON COLUMN {schema}.scope_retirements.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.scope_retirements.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.scope_retirements.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.scope_retirements.retired_at IS 'When the scope was retired. Plan_times that are due later have the reason retired.';
COMMENT ON COLUMN {schema}.scope_retirements.returned_at IS 'When the scope returned. Plan_times that are due later may run. NULL: it is still retired.';

CREATE TABLE {schema}.scope_providers (
    job_name      text COLLATE "C" PRIMARY KEY,
    asked_at      timestamptz NOT NULL,
    asked_by      text NOT NULL,
    answered_at   timestamptz,
    failures      bigint NOT NULL DEFAULT 0 CHECK (failures >= 0),
    failing_since timestamptz,
    error         text,
    CHECK ((failures = 0) = (error IS NULL) AND (failures = 0) = (failing_since IS NULL))
);
COMMENT ON TABLE {schema}.scope_providers IS 'The result of the last call of each scope provider, by job. A job whose provider was never called has no row.';
COMMENT ON COLUMN {schema}.scope_providers.job_name IS 'The job whose scopes it returns.';
COMMENT ON COLUMN {schema}.scope_providers.asked_at IS 'When its last call ended.';
COMMENT ON COLUMN {schema}.scope_providers.asked_by IS 'Id of the runner that called it.';
COMMENT ON COLUMN {schema}.scope_providers.answered_at IS 'When it last returned a list of scopes; NULL: it never did.';
COMMENT ON COLUMN {schema}.scope_providers.failures IS 'Number of calls that have failed since then.';
COMMENT ON COLUMN {schema}.scope_providers.failing_since IS 'When the first of them failed.';
COMMENT ON COLUMN {schema}.scope_providers.error IS 'Why the last call failed; NULL: it succeeded.';

-- Executions and skips

-- In this schema, because a restore of it alone needs the function for its tables.
-- A function, because PostgreSQL parses the terms of a CHECK in each statement that writes a row, and for each partition in
-- each statement that it plans. It compiles a function once per session.
-- PENDING with next_attempt_at NULL: it waits for required jobs, and has a row in gates. Later than due_at: it has waited
-- for them, or its handler raised NotReady.
CREATE FUNCTION {schema}.may_be_execution(
    status text, attempt integer, max_attempts integer, due_at timestamptz, next_attempt_at timestamptz,
    gated_at timestamptz, runner_id text, lease_token uuid, heartbeat_at timestamptz, stale_after timestamptz,
    started_at timestamptz, finished_at timestamptz, duration_ms bigint, error_code text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN attempt >= 0 AND attempt <= max_attempts AND max_attempts >= 1 AND CASE WHEN finished_at IS NULL THEN
        CASE status
            WHEN 'PENDING' THEN
                CASE WHEN attempt = 0 AND gated_at IS NULL THEN next_attempt_at IS NOT DISTINCT FROM due_at
                     ELSE coalesce(next_attempt_at >= due_at, attempt = 0) END
                AND ROW(runner_id, lease_token, stale_after, started_at) IS NULL
            WHEN 'RUNNING' THEN
                ROW(runner_id, lease_token, heartbeat_at, stale_after, started_at) IS NOT NULL
                AND attempt >= 1 AND next_attempt_at IS NULL
            ELSE false END
        ELSE CASE status
            WHEN 'SUCCESS' THEN
                ROW(lease_token, started_at, duration_ms) IS NOT NULL AND next_attempt_at IS NULL
            WHEN 'FAILED' THEN error_code IS NOT NULL
            WHEN 'CANCELLED' THEN next_attempt_at IS NULL
            ELSE false END END;
END $$;
COMMENT ON FUNCTION {schema}.may_be_execution(text, integer, integer, timestamptz, timestamptz, timestamptz, text, uuid, timestamptz, timestamptz, timestamptz, timestamptz, bigint, text) IS 'Returns whether these columns of a row of executions agree: those that each status requires or excludes, and the numbers of attempts.';

-- No CHECK on traceparent and trace_id, which enqueue, trigger and the finish check.
CREATE SEQUENCE {schema}.execution_id AS bigint;
CREATE TABLE {schema}.executions (
    job_name            text COLLATE "C" NOT NULL,
    scope_kind          text COLLATE "C" NOT NULL,
    scope_id            text COLLATE "C" NOT NULL,
    plan_time           timestamptz NOT NULL,
    id                  bigint NOT NULL DEFAULT nextval('{schema}.execution_id'),
    status              text NOT NULL,
    trigger             text NOT NULL
                        CHECK (trigger = ANY ('{schedule,manual,backfill,enqueue,observed}')),
    revision            bigint NOT NULL,
    queue               text COLLATE "C" NOT NULL,
    due_at              timestamptz NOT NULL,
    payload             jsonb,
    group_id            uuid,
    enqueue_key         text COLLATE "C" CHECK (length(enqueue_key) <= 200),
    attempt             integer NOT NULL,
    max_attempts        integer NOT NULL,
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
    window_start        timestamptz,
    cancel_requested_at timestamptz,
    cancel_requested_by text,
    requested_by        text,
    created_at          timestamptz NOT NULL DEFAULT {schema}.db_now(),
    updated_at          timestamptz NOT NULL DEFAULT {schema}.db_now(),
    changed_xact        xid8,
    traceparent         text COLLATE "C",
    trace_id            text COLLATE "C",
    gated_at            timestamptz,
    gate_after          timestamptz,
    waits_until         timestamptz,
    redacted_at         timestamptz,
    CONSTRAINT uq_execution PRIMARY KEY (job_name, scope_kind, scope_id, plan_time),
    CONSTRAINT window_has_a_length CHECK (window_start < plan_time),
    CONSTRAINT status_columns CHECK ({schema}.may_be_execution(
        status, attempt, max_attempts, due_at, next_attempt_at, gated_at, runner_id, lease_token, heartbeat_at,
        stale_after, started_at, finished_at, duration_ms, error_code))
) PARTITION BY RANGE (plan_time);
CREATE INDEX executions_id ON {schema}.executions (id);
CREATE INDEX executions_running ON {schema}.executions (job_name, scope_kind, scope_id, plan_time)
    WHERE status = 'RUNNING';
-- The view queue_status counts the waiting executions of each queue, and reads only this index for that.
CREATE INDEX executions_again ON {schema}.executions (job_name, next_attempt_at) INCLUDE (queue)
    WHERE next_attempt_at IS NOT NULL;
CREATE INDEX executions_waiting ON {schema}.executions
    (job_name, scope_kind, scope_id, enqueue_key, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX executions_superseded ON {schema}.executions (job_name, scope_kind, scope_id)
    WHERE status = 'FAILED' AND next_attempt_at IS NOT NULL AND enqueue_key IS NOT NULL;
CREATE INDEX executions_covered ON {schema}.executions (job_name, scope_kind, scope_id, watermark)
    WHERE status = 'SUCCESS' AND watermark IS NOT NULL;
-- What waits for required jobs. Empty without gates.
CREATE INDEX executions_gated ON {schema}.executions (job_name)
    WHERE status = 'PENDING' AND next_attempt_at IS NULL;
CREATE INDEX executions_group ON {schema}.executions (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX executions_results ON {schema}.executions (queue, finished_at)
    WHERE result IS NOT NULL AND result_taken_at IS NULL AND finished_at IS NOT NULL
      AND next_attempt_at IS NULL;
CREATE INDEX executions_failed ON {schema}.executions (finished_at) WHERE status = 'FAILED';
-- The roll-up of hours and alerts find changes by the transaction that made them. Numbers of transactions are assigned
-- before the changes become visible, whatever the clock does.
CREATE INDEX executions_changed ON {schema}.executions (changed_xact) WHERE changed_xact IS NOT NULL;
-- For a range of plan_times without a job. The order of the key follows plan_time, so that a page of the ledger begins
-- anywhere, even if many executions share a plan_time. The condition is always true. Only the views execution_status and
-- ledger repeat it, so no other statement can use the index: those of replicas bound plan_time as well, to open few
-- partitions, and with the statistics of an empty partition the planner would prefer that range to their key.
CREATE INDEX executions_plan_time ON {schema}.executions (plan_time, job_name, scope_kind, scope_id) WHERE attempt >= 0;
-- Only attempts whose runner vanished. The view crashes repeats the condition, and no statement of a replica does. A
-- heartbeat writes none of these columns.
CREATE INDEX executions_lost ON {schema}.executions (plan_time)
    WHERE attempts @> '[{"error_code": "runner_crashed"}]' OR attempts @> '[{"error_code": "stale_timeout"}]'
       OR error_code = 'stale_timeout';
COMMENT ON TABLE {schema}.executions IS 'The ledger: one row per plan_time that has run or is to run. The row is the lock, the lease and the audit record. Partitioned by plan_time; maintain_partitions() creates and drops partitions.';
COMMENT ON COLUMN {schema}.executions.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.executions.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.executions.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.executions.plan_time IS 'Nominal UTC instant of this firing; unchanged by retries.';
COMMENT ON COLUMN {schema}.executions.id IS 'Id of the execution. Use it as idempotency key for effects outside this database.';
COMMENT ON COLUMN {schema}.executions.status IS 'PENDING, RUNNING, SUCCESS, FAILED, CANCELLED.';
COMMENT ON COLUMN {schema}.executions.trigger IS 'Origin of the execution: schedule, manual, backfill, enqueue, observed (a report that matched no plan_time, or one that was delivered after its plan_time was skipped).';
COMMENT ON COLUMN {schema}.executions.revision IS 'Revision of the job that this plan_time belongs to.';
COMMENT ON COLUMN {schema}.executions.queue IS 'Queue of the job when the row was created.';
COMMENT ON COLUMN {schema}.executions.due_at IS 'plan_time + schedule_delay + jitter: when it may start.';
COMMENT ON COLUMN {schema}.executions.payload IS 'JSON that is passed to the handler.';
COMMENT ON COLUMN {schema}.executions.group_id IS 'Group of executions that are followed as one.';
COMMENT ON COLUMN {schema}.executions.enqueue_key IS 'Key it was enqueued with: at most one execution of a key waits. Empty: enqueued with a watermark only. NULL: nothing is merged with it.';
COMMENT ON COLUMN {schema}.executions.attempt IS 'Counts the claims; 0: never claimed.';
COMMENT ON COLUMN {schema}.executions.max_attempts IS 'Copied from the job when the row was created; one more for each attempt that a drain released.';
COMMENT ON COLUMN {schema}.executions.next_attempt_at IS 'PENDING: due_at, or when its gate opened, or the next attempt after NotReady; NULL means that it waits for required jobs (gates). FAILED: when it is retried, NULL means never. Otherwise NULL.';
COMMENT ON COLUMN {schema}.executions.runner_id IS 'Runner that holds the lease or held the last one; observed: another scheduler started the run, which was reported.';
COMMENT ON COLUMN {schema}.executions.lease_token IS 'The right to write: random, new with every claim, kept after the end.';
COMMENT ON COLUMN {schema}.executions.heartbeat_at IS 'Last renewal of the lease.';
COMMENT ON COLUMN {schema}.executions.stale_after IS 'End of the lease.';
COMMENT ON COLUMN {schema}.executions.started_at IS 'When the last attempt was claimed; NULL: it was never claimed, or was released.';
COMMENT ON COLUMN {schema}.executions.finished_at IS 'When the last attempt ended; without started_at: when it was cancelled.';
COMMENT ON COLUMN {schema}.executions.duration_ms IS 'How long the handler ran, by its runner''s monotonic clock.';
COMMENT ON COLUMN {schema}.executions.rows_affected IS 'Number of affected rows that the handler reported.';
COMMENT ON COLUMN {schema}.executions.result IS 'Return value of the handler.';
COMMENT ON COLUMN {schema}.executions.result_taken_at IS 'When a consumer took the result.';
COMMENT ON COLUMN {schema}.executions.output IS 'End of the output that a command wrote.';
COMMENT ON COLUMN {schema}.executions.error_code IS 'Why it failed, in one word; with SUCCESS: why the result could not be stored, or that it was changed.';
COMMENT ON COLUMN {schema}.executions.error_msg IS 'The error as text, at most 4,000 characters.';
COMMENT ON COLUMN {schema}.executions.attempts IS 'Earlier attempts, with their holders and their ends: attempt, runner_id, lease_token, started_at, last_seen, ended_at, error_code, error_msg.';
COMMENT ON COLUMN {schema}.executions.watermark IS 'Input that this execution covers: what was enqueued until its claim, unless its worker reports another watermark; NULL: none.';
COMMENT ON COLUMN {schema}.executions.window_start IS 'Start of the window of the last attempt, which ends before plan_time: [window_start, plan_time). NULL: it had none, or was never claimed.';
COMMENT ON COLUMN {schema}.executions.cancel_requested_at IS 'When the cancellation of this execution was requested.';
COMMENT ON COLUMN {schema}.executions.cancel_requested_by IS 'The person who requested the cancellation.';
COMMENT ON COLUMN {schema}.executions.requested_by IS 'The person or program that requested this execution; NULL for the schedule.';
COMMENT ON COLUMN {schema}.executions.created_at IS 'When the row was created.';
COMMENT ON COLUMN {schema}.executions.updated_at IS 'Last write other than a heartbeat.';
COMMENT ON COLUMN {schema}.executions.changed_xact IS 'Transaction that last ended this execution, or gave it another attempt after its end; NULL: it has not ended. By it the sweeper finds the hours to count again.';
COMMENT ON COLUMN {schema}.executions.traceparent IS 'Span that enqueued or triggered this execution, in the format of the W3C header traceparent; NULL: none was given. Each attempt has a trace of its own, which links to this span.';
COMMENT ON COLUMN {schema}.executions.trace_id IS 'Trace of the attempt that ended last, 32 hexadecimal digits; NULL: it was not traced, or a later attempt is RUNNING. Not the trace in traceparent.';
COMMENT ON COLUMN {schema}.executions.gated_at IS 'When it began to wait for the jobs that its job requires; NULL: it is not gated.';
COMMENT ON COLUMN {schema}.executions.gate_after IS 'With gated_at: the required jobs must succeed for each of their plan_times after this instant, up to plan_time. NULL: not known before the first check.';
COMMENT ON COLUMN {schema}.executions.waits_until IS 'End of its wait for required jobs, and for what its handler reports with NotReady; NULL: none, or not known yet.';
COMMENT ON COLUMN {schema}.executions.redacted_at IS 'When payload, result, output, key and messages of this execution were removed, by redact() or by keep_output of the job; NULL: they were not.';

-- The windows of successes are a chain, because an exclusion constraint does not work across partitions of executions.
-- A scope has one first window. Every other one begins at the end of another, which no third one does. So the windows of
-- a scope neither overlap nor leave a gap. previous_end is window_start, except in the first one.
CREATE TABLE {schema}.windows (
    job_name     text COLLATE "C" NOT NULL,
    scope_kind   text COLLATE "C" NOT NULL,
    scope_id     text COLLATE "C" NOT NULL,
    window_start timestamptz NOT NULL,
    window_end   timestamptz NOT NULL,
    previous_end timestamptz,
    execution_id bigint NOT NULL,
    PRIMARY KEY (job_name, scope_kind, scope_id, window_end),
    CONSTRAINT window_ends_after_its_start CHECK (window_end > window_start),
    CONSTRAINT window_begins_at_an_end CHECK (previous_end = window_start),
    CONSTRAINT one_window_from_a_start UNIQUE (job_name, scope_kind, scope_id, window_start),
    CONSTRAINT window_follows_another FOREIGN KEY (job_name, scope_kind, scope_id, previous_end)
        REFERENCES {schema}.windows (job_name, scope_kind, scope_id, window_end) ON DELETE SET NULL (previous_end)
);
CREATE UNIQUE INDEX one_first_window ON {schema}.windows (job_name, scope_kind, scope_id) WHERE previous_end IS NULL;
-- The upkeep of partitions deletes the oldest.
CREATE INDEX windows_window_end ON {schema}.windows (window_end);
COMMENT ON TABLE {schema}.windows IS 'The windows that successes of jobs with windows have processed, a chain for each scope. Written together with the SUCCESS. The last one of each scope is kept as long as the scope, older ones as long as executions.';
COMMENT ON COLUMN {schema}.windows.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.windows.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.windows.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.windows.window_start IS 'Start of the window, which is part of it.';
COMMENT ON COLUMN {schema}.windows.window_end IS 'End of the window, which is not part of it: the plan_time of the execution.';
COMMENT ON COLUMN {schema}.windows.previous_end IS 'window_end of the window before it; NULL: it is the first one of its scope, or the first one that is kept.';
COMMENT ON COLUMN {schema}.windows.execution_id IS 'The execution that succeeded.';
-- No foreign key: executions has no unique id over all partitions, and a key of four columns would be checked for each
-- chunk. The end of an attempt deletes its chunks. Those of stolen attempts stay until the retention of the ledger.
CREATE TABLE {schema}.output_chunks (
    execution_id bigint NOT NULL,
    attempt      integer NOT NULL,
    number       integer NOT NULL,
    written_at   timestamptz NOT NULL,
    text         text NOT NULL,
    PRIMARY KEY (execution_id, attempt, number)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE {schema}.output_chunks IS 'The output of executions that are RUNNING, which their runners write every two seconds, or sooner while somebody follows. At the end of an attempt, its output moves to the row of the execution, and its chunks are deleted. If the runner of an attempt died and the execution was stolen, its chunks remain.';
COMMENT ON COLUMN {schema}.output_chunks.execution_id IS 'The execution.';
COMMENT ON COLUMN {schema}.output_chunks.attempt IS 'Number of the attempt.';
COMMENT ON COLUMN {schema}.output_chunks.number IS 'Place of the chunk. Numbers are missing where the middle of a long output was dropped, and the chunk before them states how much.';
COMMENT ON COLUMN {schema}.output_chunks.written_at IS 'When the chunk was written.';
COMMENT ON COLUMN {schema}.output_chunks.text IS 'The output, with secrets masked as in executions.output.';
-- A table of its own, so that it is empty without gates, and the end of an execution needs one probe of an empty index.
CREATE TABLE {schema}.gates (
    job_name           text COLLATE "C" NOT NULL,
    scope_kind         text COLLATE "C" NOT NULL,
    scope_id           text COLLATE "C" NOT NULL,
    plan_time          timestamptz NOT NULL,
    check_at           timestamptz DEFAULT {schema}.db_now(),
    upstream_job       text COLLATE "C",
    upstream_kind      text COLLATE "C",
    upstream_id        text COLLATE "C",
    upstream_plan_time timestamptz,
    missing            text,
    PRIMARY KEY (job_name, scope_kind, scope_id, plan_time),
    CHECK ((upstream_job IS NULL) = (missing IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 70);
CREATE INDEX gates_upstream ON {schema}.gates (upstream_job, upstream_kind, upstream_id);
CREATE INDEX gates_check_at ON {schema}.gates (check_at) WHERE check_at IS NOT NULL;
COMMENT ON TABLE {schema}.gates IS 'One row for each execution that waits for jobs that its job requires. It is deleted when the gate opens, when the wait ends, and when the execution is cancelled.';
COMMENT ON COLUMN {schema}.gates.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.gates.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.gates.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.gates.plan_time IS 'The waiting execution.';
COMMENT ON COLUMN {schema}.gates.check_at IS 'When the gate is checked next, at the latest a minute after the end of the wait; NULL: after the next change of the job for which it waits.';
COMMENT ON COLUMN {schema}.gates.upstream_job IS 'Required job for which it waits. There may be more of them, which are checked afterwards. NULL: not checked yet.';
COMMENT ON COLUMN {schema}.gates.upstream_kind IS 'Kind of the scope of that job.';
COMMENT ON COLUMN {schema}.gates.upstream_id IS 'Id of the scope of that job.';
COMMENT ON COLUMN {schema}.gates.upstream_plan_time IS 'Its first plan_time that has not succeeded; NULL: it is not planned that far.';
COMMENT ON COLUMN {schema}.gates.missing IS 'What is missing, for people.';

-- A table of its own, so that an execution without progress has no wider row. Reports of one attempt change one row, and no
-- index contains a column that they change (HOT).
CREATE TABLE {schema}.execution_progress (
    execution_id bigint PRIMARY KEY,
    lease_token  uuid NOT NULL,
    done         bigint NOT NULL CHECK (done >= 0),
    total        bigint CHECK (total >= done),
    text         text CHECK (length(text) <= 200),
    reported_at  timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, fillfactor = 50);
COMMENT ON TABLE {schema}.execution_progress IS 'The last progress that an execution reported. A new attempt replaces it with its first report. It is deleted 7 days after the report, and by redact().';
COMMENT ON COLUMN {schema}.execution_progress.execution_id IS 'The execution.';
COMMENT ON COLUMN {schema}.execution_progress.lease_token IS 'The attempt that reported it. The progress of an earlier attempt is not shown.';
COMMENT ON COLUMN {schema}.execution_progress.done IS 'Completed units of work, as the handler counts them.';
COMMENT ON COLUMN {schema}.execution_progress.total IS 'Units of work in all; NULL: not known.';
COMMENT ON COLUMN {schema}.execution_progress.text IS 'Text of the report: what the handler is doing; NULL: none was given.';
COMMENT ON COLUMN {schema}.execution_progress.reported_at IS 'When the report was written.';

CREATE TABLE {schema}.skips (
    job_name          text COLLATE "C" NOT NULL,
    scope_kind        text COLLATE "C" NOT NULL,
    scope_id          text COLLATE "C" NOT NULL,
    from_plan_time    timestamptz NOT NULL,
    through_plan_time timestamptz NOT NULL,
    count             bigint NOT NULL CHECK (count >= 1),
    reason            text NOT NULL
                      CHECK (reason = ANY (
                          '{overlap,superseded,missed,paused,retired,operator,calendar,upstream,host_absent,not_reported}')),
    blocked_by        bigint,
    revision          bigint NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT {schema}.db_now(),
    changed_xact      xid8 DEFAULT pg_current_xact_id(),
    detail            text,
    PRIMARY KEY (job_name, scope_kind, scope_id, from_plan_time)
);
CREATE INDEX skips_plan_time ON {schema}.skips (from_plan_time, job_name, scope_kind, scope_id);
CREATE INDEX skips_changed ON {schema}.skips (changed_xact)
    WHERE changed_xact IS NOT NULL AND reason IN ('overlap', 'missed', 'upstream', 'host_absent', 'not_reported');
COMMENT ON TABLE {schema}.skips IS 'Ranges of plan_times that did not run, each with a reason. The plan_times that follow extend the range while its reason, detail and revision are the same. With the reason missed, only those whose grace had ended at created_at do so.';
COMMENT ON COLUMN {schema}.skips.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.skips.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.skips.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.skips.from_plan_time IS 'First plan_time of the range.';
COMMENT ON COLUMN {schema}.skips.through_plan_time IS 'Last plan_time of the range.';
COMMENT ON COLUMN {schema}.skips.count IS 'Number of plan_times in the range.';
COMMENT ON COLUMN {schema}.skips.reason IS 'overlap, superseded (a newer plan_time ran, or the window of a SUCCESS contains this one), missed, paused, retired, operator (a planned skip), calendar, upstream (a required job did not succeed in time), host_absent (no replica of the host had checked in by the end of grace), not_reported (no start of this observed job was reported within grace).';
COMMENT ON COLUMN {schema}.skips.detail IS 'With reason calendar: the name of the excluded day. With operator: the reason of the planned skip. With reason upstream: what was missing. Otherwise NULL.';
COMMENT ON COLUMN {schema}.skips.blocked_by IS 'With reason overlap: id of the execution that was RUNNING.';
COMMENT ON COLUMN {schema}.skips.revision IS 'Revision that the plan_times belong to.';
COMMENT ON COLUMN {schema}.skips.created_at IS 'When the first plan_time of the range was skipped.';
COMMENT ON COLUMN {schema}.skips.changed_xact IS 'Number of the transaction that created the range, or that extended it last if its reason is overlap, missed, upstream, host_absent or not_reported. By it, raise_alerts() finds what has changed.';

-- A plan_time is covered if it lies between from_plan_time and covered_through. Nothing else decides that.
CREATE SEQUENCE {schema}.planned_skip_id AS bigint;
CREATE TABLE {schema}.planned_skips (
    id                bigint PRIMARY KEY DEFAULT nextval('{schema}.planned_skip_id'),
    job_name          text COLLATE "C" NOT NULL,
    scope_kind        text COLLATE "C",
    scope_id          text COLLATE "C",
    from_plan_time    timestamptz NOT NULL CHECK (from_plan_time >= '1970-01-01 00:00+00'),
    through_plan_time timestamptz NOT NULL CHECK (through_plan_time < '9999-01-01 00:00+00'),
    reason            text NOT NULL CHECK (btrim(reason) <> '' AND length(reason) <= 1000),
    requested_by      text NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT {schema}.db_clock(),
    withdrawn_at      timestamptz,
    withdrawn_by      text,
    withdrawn_after   timestamptz,
    covered_through   timestamptz NOT NULL GENERATED ALWAYS AS (least(through_plan_time, withdrawn_after)) STORED,
    CHECK (from_plan_time <= through_plan_time),
    CHECK ((scope_kind IS NULL) = (scope_id IS NULL)),
    CHECK (num_nulls(withdrawn_at, withdrawn_by, withdrawn_after) IN (0, 3))
);
CREATE INDEX planned_skips_covered ON {schema}.planned_skips (job_name, covered_through)
    WHERE covered_through >= from_plan_time;
COMMENT ON SEQUENCE {schema}.planned_skip_id IS 'Numbers planned_skips.';
COMMENT ON TABLE {schema}.planned_skips IS 'The decisions of operators that plan_times do not run. The planner and verify read them only from here. Written by skip() and unskip(). Pruned with the plan_times.';
COMMENT ON COLUMN {schema}.planned_skips.id IS 'Id of the planned skip.';
COMMENT ON COLUMN {schema}.planned_skips.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.planned_skips.scope_kind IS 'Kind of the scope; NULL: all scopes of the job.';
COMMENT ON COLUMN {schema}.planned_skips.scope_id IS 'Id of the scope; NULL: all scopes of the job, also later ones.';
COMMENT ON COLUMN {schema}.planned_skips.from_plan_time IS 'The first plan_time that does not run.';
COMMENT ON COLUMN {schema}.planned_skips.through_plan_time IS 'The last plan_time that was not to run when the skip was planned.';
COMMENT ON COLUMN {schema}.planned_skips.reason IS 'Why, in the words of the operator: the detail of the skips.';
COMMENT ON COLUMN {schema}.planned_skips.requested_by IS 'The person or program that planned it.';
COMMENT ON COLUMN {schema}.planned_skips.created_at IS 'When it was planned.';
COMMENT ON COLUMN {schema}.planned_skips.withdrawn_at IS 'When it was withdrawn; NULL: it was not.';
COMMENT ON COLUMN {schema}.planned_skips.withdrawn_by IS 'The person or program that withdrew it.';
COMMENT ON COLUMN {schema}.planned_skips.withdrawn_after IS 'Later plan_times run again; earlier ones were reached before the withdrawal. NULL: it was not withdrawn.';
COMMENT ON COLUMN {schema}.planned_skips.covered_through IS 'The last plan_time that does not run. Before from_plan_time: it was withdrawn before any was reached.';

-- Reports of runs that another scheduler started. A report becomes an execution in a claim, which matches it with a
-- plan_time. Until then it waits in the index reports_unmatched, which is mostly empty.
CREATE SEQUENCE {schema}.report_id AS bigint;
CREATE TABLE {schema}.reports (
    id              bigint PRIMARY KEY DEFAULT nextval('{schema}.report_id'),
    job_name        text COLLATE "C" NOT NULL,
    scope_kind      text COLLATE "C" NOT NULL,
    scope_id        text COLLATE "C" NOT NULL,
    run_key         text COLLATE "C" CHECK (length(run_key) BETWEEN 1 AND 200),
    started_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    exit_status     integer,
    error           text CHECK (length(error) <= 4000),
    output          text,
    host            text CHECK (length(host) <= 200),
    source          text NOT NULL CHECK (length(source) <= 40),
    received_at     timestamptz NOT NULL DEFAULT {schema}.db_clock(),
    end_received_at timestamptz,
    plan_time       timestamptz,
    execution_id    bigint,
    CHECK ((plan_time IS NULL) = (execution_id IS NULL)),
    CHECK ((ended_at IS NULL) = (end_received_at IS NULL)),
    CHECK (ended_at IS NOT NULL OR (exit_status IS NULL AND error IS NULL AND output IS NULL))
);
CREATE UNIQUE INDEX reports_run_key ON {schema}.reports (job_name, scope_kind, scope_id, run_key)
    WHERE run_key IS NOT NULL;
CREATE INDEX reports_unmatched ON {schema}.reports (job_name, scope_kind, scope_id, started_at, id)
    WHERE execution_id IS NULL;
CREATE INDEX reports_open ON {schema}.reports (job_name, scope_kind, scope_id, started_at) WHERE ended_at IS NULL;
CREATE INDEX reports_started ON {schema}.reports (job_name, scope_kind, scope_id, started_at);
-- The upkeep of partitions deletes the oldest.
CREATE INDEX reports_started_at ON {schema}.reports (started_at);
COMMENT ON TABLE {schema}.reports IS 'Runs that another scheduler started, as they were reported by observe_start() and observe_end(). A claim makes an execution of each. Kept as long as executions.';
COMMENT ON COLUMN {schema}.reports.id IS 'Id of the report.';
COMMENT ON COLUMN {schema}.reports.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.reports.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.reports.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.reports.run_key IS 'Key of the run, by which a report that is delivered again changes nothing; NULL: none was given.';
COMMENT ON COLUMN {schema}.reports.started_at IS 'When the run started, by the clock of the database.';
COMMENT ON COLUMN {schema}.reports.ended_at IS 'When the run ended; NULL: no end was reported.';
COMMENT ON COLUMN {schema}.reports.exit_status IS 'Exit status of the run; NULL: none was reported.';
COMMENT ON COLUMN {schema}.reports.error IS 'Why the run failed, until the execution has it; NULL: no error was reported.';
COMMENT ON COLUMN {schema}.reports.output IS 'End of the output that was reported, until the execution has it.';
COMMENT ON COLUMN {schema}.reports.host IS 'Host of the run; NULL: unknown.';
COMMENT ON COLUMN {schema}.reports.source IS 'What reported the run: command, sql, http, or a name of the caller.';
COMMENT ON COLUMN {schema}.reports.received_at IS 'When the ledger received the report.';
COMMENT ON COLUMN {schema}.reports.end_received_at IS 'When the ledger received the end.';
COMMENT ON COLUMN {schema}.reports.plan_time IS 'plan_time of its execution; NULL: no claim has read the report yet.';
COMMENT ON COLUMN {schema}.reports.execution_id IS 'Its execution.';

-- Tokens with which programs report runs over HTTP. Used and written by every report.
CREATE SEQUENCE {schema}.report_token_id AS bigint;
CREATE TABLE {schema}.report_tokens (
    id           bigint PRIMARY KEY DEFAULT nextval('{schema}.report_token_id'),
    token_hash   text NOT NULL UNIQUE CHECK (token_hash ~ '^[0-9a-f]{64}$'),
    job_name     text COLLATE "C" NOT NULL,
    scope_kind   text COLLATE "C" NOT NULL,
    scope_id     text COLLATE "C" NOT NULL,
    host         text CHECK (length(host) BETWEEN 1 AND 200),
    created_at   timestamptz NOT NULL,
    created_by   text NOT NULL,
    last_used_at timestamptz,
    minute_from  timestamptz NOT NULL,
    minute_count integer NOT NULL DEFAULT 0,
    revoked_at   timestamptz,
    revoked_by   text,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) WITH (fillfactor = 50);
COMMENT ON SEQUENCE {schema}.report_token_id IS 'Numbers report_tokens.';
COMMENT ON TABLE {schema}.report_tokens IS 'Tokens with which programs report runs of observed jobs to the web page (/report/TOKEN). The table has only hashes, so nobody can report runs with a dump of it.';
COMMENT ON COLUMN {schema}.report_tokens.id IS 'Id of the token.';
COMMENT ON COLUMN {schema}.report_tokens.token_hash IS 'SHA-256 of the token.';
COMMENT ON COLUMN {schema}.report_tokens.job_name IS 'The job whose runs the token reports.';
COMMENT ON COLUMN {schema}.report_tokens.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.report_tokens.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.report_tokens.host IS 'Host that is recorded with each report; NULL: none.';
COMMENT ON COLUMN {schema}.report_tokens.created_at IS 'When the token was created.';
COMMENT ON COLUMN {schema}.report_tokens.created_by IS 'The person who created the token.';
COMMENT ON COLUMN {schema}.report_tokens.last_used_at IS 'When its last report arrived; NULL: none has arrived.';
COMMENT ON COLUMN {schema}.report_tokens.minute_from IS 'Start of the minute in which reports are counted.';
COMMENT ON COLUMN {schema}.report_tokens.minute_count IS 'Number of reports in this minute, which is limited.';
COMMENT ON COLUMN {schema}.report_tokens.revoked_at IS 'When the token was revoked; NULL: it is valid.';
COMMENT ON COLUMN {schema}.report_tokens.revoked_by IS 'The person who revoked the token.';

-- verify cannot conclude from the partitions where the history ends, because a partition that somebody dropped looks
-- like one that was pruned.
CREATE TABLE {schema}.pruned (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    through     timestamptz CHECK (isfinite(through)),
    recorded_at timestamptz NOT NULL DEFAULT {schema}.db_now()
);
COMMENT ON TABLE {schema}.pruned IS 'The instant up to which maintain_partitions has dropped partitions and deleted skips.';
COMMENT ON COLUMN {schema}.pruned.singleton IS 'Always true: the table has one row.';
COMMENT ON COLUMN {schema}.pruned.through IS 'Executions and skips with plan_times up to this instant may be pruned; all later ones are kept. NULL: nothing was pruned.';
COMMENT ON COLUMN {schema}.pruned.recorded_at IS 'When it was last changed.';
INSERT INTO {schema}.pruned DEFAULT VALUES;

CREATE TABLE {schema}.retention (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    keep      interval NOT NULL DEFAULT '90 days' CHECK (keep BETWEEN interval '1 day' AND interval '36525 days'),
    set_at    timestamptz,
    set_by    text
);
COMMENT ON TABLE {schema}.retention IS 'How long the ledger keeps executions, and with them skips, runners and alerts. Written by set_retention().';
COMMENT ON COLUMN {schema}.retention.singleton IS 'Always true: the table has one row.';
COMMENT ON COLUMN {schema}.retention.keep IS 'A partition of executions is dropped once all of its plan_times are older than this.';
COMMENT ON COLUMN {schema}.retention.set_at IS 'When it was set; NULL: never, so that it is the initial value.';
COMMENT ON COLUMN {schema}.retention.set_by IS 'Who set it; NULL: nobody.';
INSERT INTO {schema}.retention DEFAULT VALUES;

-- Runners and queues

CREATE TABLE {schema}.runners (
    id           text COLLATE "C" PRIMARY KEY,
    host         text NOT NULL,
    pid          integer NOT NULL,
    version      text NOT NULL,
    deploy       bigint,
    state        text NOT NULL CHECK (state IN ('running', 'draining', 'stopped')),
    queues       text[] NOT NULL,
    labels       text[] NOT NULL DEFAULT '{}',
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
COMMENT ON TABLE {schema}.runners IS 'Processes that run executions. A row is kept for the retention of executions after the last check-in of its runner. After a day, its diagnostics are removed.';
COMMENT ON COLUMN {schema}.runners.id IS 'Name of the runner: host-pid unless it is configured. If a live runner has that name, a number is appended.';
COMMENT ON COLUMN {schema}.runners.host IS 'Host on which it runs.';
COMMENT ON COLUMN {schema}.runners.pid IS 'Its process id on that host.';
COMMENT ON COLUMN {schema}.runners.version IS 'Version of cronledger.';
COMMENT ON COLUMN {schema}.runners.deploy IS 'Ordered version of its deployment; NULL: none was given.';
COMMENT ON COLUMN {schema}.runners.state IS 'running, draining, stopped.';
COMMENT ON COLUMN {schema}.runners.queues IS 'Queues that it serves.';
COMMENT ON COLUMN {schema}.runners.labels IS 'Its labels, such as host=web1 and role=web, which jobs name in "on" and every.';
COMMENT ON COLUMN {schema}.runners.slots IS 'Number of executions that it can run at once.';
COMMENT ON COLUMN {schema}.runners.running IS 'How many executions it ran at its last check-in.';
COMMENT ON COLUMN {schema}.runners.started_at IS 'When it registered.';
COMMENT ON COLUMN {schema}.runners.heartbeat_at IS 'Time of the last check-in.';
COMMENT ON COLUMN {schema}.runners.stale_after IS 'The runner counts as dead unless it checks in before this instant.';
COMMENT ON COLUMN {schema}.runners.timeline IS 'Timeline of the server at the last check-in; set by a trigger.';
COMMENT ON COLUMN {schema}.runners.clock_skew IS 'Its wall clock minus the clock of the database, for information only.';
COMMENT ON COLUMN {schema}.runners.fingerprint IS 'Versions of Python, croniter and the time zone data.';
COMMENT ON COLUMN {schema}.runners.handlers IS 'Python functions that it has imported.';
COMMENT ON COLUMN {schema}.runners.diagnostics IS 'Its state at the last check-in, as in /diagnostics with the twenty oldest executions: executions, ticks, lag, lost leases, database errors.';

-- A row is locked by each check-in of the host, and by a claim that records its absence. So each of them sees the
-- other, and no plan_time is skipped because of an absence that a check-in has ended.
CREATE TABLE {schema}.hosts (
    name            text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
    labels          text[] NOT NULL DEFAULT '{}',
    present_from    timestamptz,
    checked_in_at   timestamptz NOT NULL DEFAULT '1970-01-01Z',
    present_through timestamptz NOT NULL,
    retired_at      timestamptz,
    retired_by      text,
    CHECK ((retired_at IS NULL) = (retired_by IS NULL))
) WITH (fillfactor = 50);
-- Neither of its columns changes in a check-in, so that the update stays within its page.
CREATE INDEX hosts_in_use ON {schema}.hosts (name) WHERE retired_at IS NULL;
COMMENT ON TABLE {schema}.hosts IS 'Hosts on which replicas have run, or that a job lists. Written by each check-in.';
COMMENT ON COLUMN {schema}.hosts.name IS 'Name of the host, the label host of its replicas, and the scope_id of its schedules.';
COMMENT ON COLUMN {schema}.hosts.labels IS 'All labels of its replicas whose last check-in counts, or counted in the last 10 minutes. While none is live: the last ones.';
COMMENT ON COLUMN {schema}.hosts.present_from IS 'Start of the time in which a replica of the host has checked in without a gap; NULL: none has checked in.';
COMMENT ON COLUMN {schema}.hosts.checked_in_at IS 'When a replica of the host last checked in. An absence begins at this instant. 1970: none ever did.';
COMMENT ON COLUMN {schema}.hosts.present_through IS 'End of the time for which the last check-in counts. Without another one until then, the host is absent since checked_in_at. 1970: it never checked in.';
COMMENT ON COLUMN {schema}.hosts.retired_at IS 'When the host was retired; NULL: it is not retired. A check-in ends the retirement.';
COMMENT ON COLUMN {schema}.hosts.retired_by IS 'The person who retired it, or hosts_retire_after.';

CREATE TABLE {schema}.host_absences (
    host     text COLLATE "C" NOT NULL,
    from_at  timestamptz NOT NULL,
    until_at timestamptz NOT NULL,
    PRIMARY KEY (host, from_at),
    CHECK (from_at < until_at)
);
CREATE INDEX host_absences_ended ON {schema}.host_absences (until_at);
COMMENT ON TABLE {schema}.host_absences IS 'Times in which no replica of a host checked in, once they are over. Written by the check-in that ends one. The planner and verify read the absences of hosts only from here, and the current one from hosts. Rows that ended before the executions that are kept are pruned.';
COMMENT ON COLUMN {schema}.host_absences.host IS 'The host.';
COMMENT ON COLUMN {schema}.host_absences.from_at IS 'When its last check-in before the absence was. 1970: it had never checked in.';
COMMENT ON COLUMN {schema}.host_absences.until_at IS 'When it checked in again.';

CREATE TABLE {schema}.host_boots (
    host          text COLLATE "C" NOT NULL,
    boot_id       text COLLATE "C" NOT NULL CHECK (length(boot_id) BETWEEN 1 AND 200),
    booted_at     timestamptz NOT NULL,
    checked_in_at timestamptz NOT NULL,
    reported_at   timestamptz NOT NULL DEFAULT {schema}.db_clock(),
    plan_time     timestamptz,
    jobs          text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (host, boot_id),
    UNIQUE (host, plan_time)
);
COMMENT ON TABLE {schema}.host_boots IS 'Boots of hosts, which are the plan_times of jobs with the schedule @reboot. Written by check-ins. The planner and verify read boots only from here. Boots that are older than the executions that are kept are pruned once no replica reports them, except for the last boot of each host.';
COMMENT ON COLUMN {schema}.host_boots.host IS 'The host.';
COMMENT ON COLUMN {schema}.host_boots.boot_id IS 'Identity of the boot: that of the kernel, or the setting boot_id of the replica.';
COMMENT ON COLUMN {schema}.host_boots.booted_at IS 'When the host booted: checked_in_at minus the time for which it had been up.';
COMMENT ON COLUMN {schema}.host_boots.checked_in_at IS 'When a replica first checked in after the boot. If this is later than the grace of a job after booted_at, the plan_time is a skip host_absent.';
COMMENT ON COLUMN {schema}.host_boots.reported_at IS 'When a check-in last reported the boot. Updated at most once an hour. Containers with one host name report several boots in turn, so a boot is not pruned while it is reported.';
COMMENT ON COLUMN {schema}.host_boots.plan_time IS 'The plan_time of the boot for these jobs: a whole second after the check-in that set it. NULL: a job with every does not have the scope of a new host yet, or a schedule was locked. The next check-in tries again.';
COMMENT ON COLUMN {schema}.host_boots.jobs IS 'The jobs that had the schedule @reboot and this host when plan_time was set. The plan_time counts for a job only if the revision that it belongs to has this schedule.';

CREATE TABLE {schema}.queues (
    name          text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
    max_running   integer CHECK (max_running >= 1),
    paused_at     timestamptz,
    paused_by     text,
    paused_reason text,
    CHECK (paused_at IS NOT NULL OR (paused_by IS NULL AND paused_reason IS NULL))
);
COMMENT ON TABLE {schema}.queues IS 'Queues with a limit or a pause; a queue without a row has neither.';
COMMENT ON COLUMN {schema}.queues.name IS 'Name of the queue, as in jobs.queue and in the queues of runners.';
COMMENT ON COLUMN {schema}.queues.max_running IS 'Limit of RUNNING executions of this queue, over all replicas; NULL: no limit.';
COMMENT ON COLUMN {schema}.queues.paused_at IS 'When the queue was paused; NULL: it is not paused.';
COMMENT ON COLUMN {schema}.queues.paused_by IS 'The person who paused it.';
COMMENT ON COLUMN {schema}.queues.paused_reason IS 'Why it is paused.';

-- Sources

CREATE TABLE {schema}.sources (
    name       text COLLATE "C" PRIMARY KEY,
    deploy     bigint,
    applied_at timestamptz NOT NULL DEFAULT {schema}.db_now(),
    applied_by text,
    host       text
);
COMMENT ON TABLE {schema}.sources IS 'Files and Apps that were applied; an older deploy does not overwrite a newer one.';
COMMENT ON COLUMN {schema}.sources.name IS 'The source, as in jobs.source.';
COMMENT ON COLUMN {schema}.sources.deploy IS 'Ordered version of the deployment that was applied last; NULL: none was given.';
COMMENT ON COLUMN {schema}.sources.applied_at IS 'When it was applied.';
COMMENT ON COLUMN {schema}.sources.applied_by IS 'The person who applied it.';
COMMENT ON COLUMN {schema}.sources.host IS 'The only host that may change the jobs of this source, because its name is the path of a file or package.module:app; NULL: it was named, and any host may.';

-- Identity of the ledger

CREATE TABLE {schema}.identity (
    singleton         boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    ledger_id         uuid NOT NULL DEFAULT gen_random_uuid(),
    copy_of           uuid,
    system_identifier bigint NOT NULL,
    database_oid      oid NOT NULL,
    timeline          integer NOT NULL,
    failed_over_from  integer,
    recorded_at       timestamptz NOT NULL DEFAULT {schema}.db_now(),
    recorded_by       text NOT NULL DEFAULT session_user
);
COMMENT ON TABLE {schema}.identity IS 'The database to which this ledger belongs. A restored or cloned database differs from it.';
COMMENT ON COLUMN {schema}.identity.singleton IS 'Always true: the table has one row.';
COMMENT ON COLUMN {schema}.identity.ledger_id IS 'Random id of the ledger, wherever its database is: replicas work only in the ledger with which they began. A failover, a restore and accept_database(false) keep it; accept_database(true) gives the copy an id of its own.';
COMMENT ON COLUMN {schema}.identity.copy_of IS 'The ledger_id of the original, if this is an accepted copy; otherwise NULL.';
COMMENT ON COLUMN {schema}.identity.system_identifier IS 'pg_control_system().system_identifier.';
COMMENT ON COLUMN {schema}.identity.database_oid IS 'pg_database.oid.';
COMMENT ON COLUMN {schema}.identity.timeline IS 'Timeline of the server; a failover updates it.';
COMMENT ON COLUMN {schema}.identity.failed_over_from IS 'Timeline before a failover that no person has confirmed with accept_database; NULL: none.';
COMMENT ON COLUMN {schema}.identity.recorded_at IS 'When it was recorded.';
COMMENT ON COLUMN {schema}.identity.recorded_by IS 'The role that created the ledger, or the person who accepted or refused this database.';
INSERT INTO {schema}.identity (system_identifier, database_oid, timeline)
SELECT (SELECT system_identifier FROM pg_control_system()),
       (SELECT oid FROM pg_database WHERE datname = current_database()),
       ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer;

-- Audit trail: who did what to the ledger. Rows are only added.

CREATE SEQUENCE {schema}.operator_action_id AS bigint;
CREATE TABLE {schema}.operator_actions (
    id            bigint NOT NULL DEFAULT nextval('{schema}.operator_action_id'),
    at            timestamptz NOT NULL,
    "session_user" text NOT NULL,
    requested_by  text NOT NULL,
    verb          text NOT NULL CHECK (verb ~ '^[a-z_]{1,63}$'),
    object_kind   text NOT NULL
                  CHECK (object_kind IN ('job', 'queue', 'execution', 'channel', 'delivery', 'acceptance', 'ledger',
                                         'pause', 'source', 'calendar', 'host')),
    object        text,
    job_name      text COLLATE "C",
    revision      bigint,
    execution_ids bigint[] NOT NULL DEFAULT '{}',
    arguments     jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(arguments) = 'object'),
    reason        text,
    outcome       text NOT NULL,
    error         text CHECK (length(error) <= 4000),
    CONSTRAINT refused_columns CHECK ((outcome = 'refused') = (error IS NOT NULL))
);
-- Not unique, because a restore or a logical replica without the sequence must not make every action fail.
CREATE INDEX operator_actions_id ON {schema}.operator_actions (id);
CREATE INDEX operator_actions_at ON {schema}.operator_actions (at, id);
CREATE INDEX operator_actions_job ON {schema}.operator_actions (job_name, at, id) WHERE job_name IS NOT NULL;
COMMENT ON SEQUENCE {schema}.operator_action_id IS 'Numbers operator_actions.';
COMMENT ON TABLE {schema}.operator_actions IS 'The audit trail: one row for each call of an operator function, each edit of a job, queue or channel, and each recorded refusal. UPDATE, DELETE and TRUNCATE are refused. Read through the view audit.';
COMMENT ON COLUMN {schema}.operator_actions.id IS 'Id of the row.';
COMMENT ON COLUMN {schema}.operator_actions.at IS 'When it was done, or refused.';
COMMENT ON COLUMN {schema}.operator_actions."session_user" IS 'The role that had logged in. Quote the name of this column.';
COMMENT ON COLUMN {schema}.operator_actions.requested_by IS 'The person or program that requested it, as the caller named it; by default the role.';
COMMENT ON COLUMN {schema}.operator_actions.verb IS 'Name of the function; for an edit by SQL or apply also add, edit, return, delete, edit_queue, delete_queue, add_channel, edit_channel, delete_channel, edit_source.';
COMMENT ON COLUMN {schema}.operator_actions.object_kind IS 'Kind of the object: job, queue, execution, channel, delivery, acceptance, ledger, pause, source, calendar, host.';
COMMENT ON COLUMN {schema}.operator_actions.object IS 'Name of the job, queue, channel, source or calendar, or id of the execution, delivery, acceptance or pause; NULL: all queues, or the ledger.';
COMMENT ON COLUMN {schema}.operator_actions.job_name IS 'The job; NULL: the action is not about one job.';
COMMENT ON COLUMN {schema}.operator_actions.revision IS 'Revision of the job that the action made; NULL: it made none.';
COMMENT ON COLUMN {schema}.operator_actions.execution_ids IS 'Executions that it created, retried or cancelled. Of a backfill: those that it retried.';
COMMENT ON COLUMN {schema}.operator_actions.arguments IS 'Arguments and results. Payloads and definitions are left out.';
COMMENT ON COLUMN {schema}.operator_actions.reason IS 'The reason that was given; NULL: none.';
COMMENT ON COLUMN {schema}.operator_actions.outcome IS 'done; unchanged: there was nothing to do; refused; or the result of the function, such as retried.';
COMMENT ON COLUMN {schema}.operator_actions.error IS 'Why it was refused; NULL: it was not.';

CREATE TABLE {schema}.actions_in_progress (
    xact xid8 PRIMARY KEY
);
COMMENT ON TABLE {schema}.actions_in_progress IS 'Transactions in which an operator function that edits jobs or queues, or that calls other functions, is in progress. Each row is deleted before it is committed, so no other transaction sees it.';
COMMENT ON COLUMN {schema}.actions_in_progress.xact IS 'The transaction.';

-- Alerts: jobs.notify declares which changes of state are sent to which channel. raise_alerts() tracks the states,
-- writes each edge once, and in the same transaction the deliveries of the edges: an outbox, from which replicas send.

CREATE TABLE {schema}.channels (
    name      text COLLATE "C" PRIMARY KEY,
    settings  jsonb NOT NULL,
    source    text,
    paused_at timestamptz,
    edited_by text
);
COMMENT ON TABLE {schema}.channels IS 'Where alerts are sent. Read through the view channel_status.';
COMMENT ON COLUMN {schema}.channels.name IS 'The channel, as jobs.notify names it.';
COMMENT ON COLUMN {schema}.channels.settings IS 'kind, the keys of that kind, and on_ledger: a JSON object such as {"kind": "slack", "url": {"env": "SLACK_URL"}}.';
COMMENT ON COLUMN {schema}.channels.source IS 'File or App that declared it; NULL: SQL.';
COMMENT ON COLUMN {schema}.channels.paused_at IS 'When it was paused, so that nothing is delivered; NULL: it is not paused.';
COMMENT ON COLUMN {schema}.channels.edited_by IS 'The person or program that wrote the row last, if it gave its name.';

CREATE SEQUENCE {schema}.delivery_id AS bigint;
CREATE TABLE {schema}.deliveries (
    id           bigint PRIMARY KEY DEFAULT nextval('{schema}.delivery_id'),
    channel      text COLLATE "C" NOT NULL,
    status       text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'RUNNING', 'SUCCESS', 'FAILED')),
    created_at   timestamptz NOT NULL DEFAULT {schema}.db_clock(),
    due_at       timestamptz DEFAULT {schema}.db_clock(),
    attempt      integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 10,
    lease_token  uuid,
    runner_id    text,
    started_at   timestamptz,
    finished_at  timestamptz,
    error_code   text,
    error_msg    text,
    requested_by text,
    expires_at   timestamptz,
    CONSTRAINT lease_columns CHECK ((status = 'RUNNING') = (lease_token IS NOT NULL)),
    CONSTRAINT due_columns CHECK (status = 'FAILED' OR (due_at IS NULL) = (status = 'SUCCESS'))
);
CREATE INDEX deliveries_due ON {schema}.deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_channel ON {schema}.deliveries (channel, created_at, id);
CREATE INDEX deliveries_created ON {schema}.deliveries (created_at);
COMMENT ON SEQUENCE {schema}.delivery_id IS 'Numbers deliveries.';
COMMENT ON TABLE {schema}.deliveries IS 'Deliveries of alerts: the alerts that name the delivery are sent to its channel. Read through the view delivery_status.';
COMMENT ON COLUMN {schema}.deliveries.id IS 'Id of the delivery, the same in each attempt.';
COMMENT ON COLUMN {schema}.deliveries.channel IS 'The channel.';
COMMENT ON COLUMN {schema}.deliveries.status IS 'PENDING, RUNNING, SUCCESS or FAILED. With due_at, FAILED is tried again.';
COMMENT ON COLUMN {schema}.deliveries.created_at IS 'When it was created.';
COMMENT ON COLUMN {schema}.deliveries.due_at IS 'When a replica may send it. While it is RUNNING: when its lease ends. NULL: it has ended.';
COMMENT ON COLUMN {schema}.deliveries.attempt IS 'Number of the current or last attempt; 0: none has begun.';
COMMENT ON COLUMN {schema}.deliveries.max_attempts IS 'Number of attempts after which it is not tried again.';
COMMENT ON COLUMN {schema}.deliveries.lease_token IS 'Only the attempt with this token may write its end; NULL: it is not RUNNING.';
COMMENT ON COLUMN {schema}.deliveries.runner_id IS 'The runner of the current or last attempt.';
COMMENT ON COLUMN {schema}.deliveries.started_at IS 'When that attempt began.';
COMMENT ON COLUMN {schema}.deliveries.finished_at IS 'When the last attempt ended.';
COMMENT ON COLUMN {schema}.deliveries.error_code IS 'Why the last attempt failed; NULL: it did not.';
COMMENT ON COLUMN {schema}.deliveries.error_msg IS 'That error in words.';
COMMENT ON COLUMN {schema}.deliveries.requested_by IS 'Of a test: the person or program that requested it. NULL: it delivers alerts.';
COMMENT ON COLUMN {schema}.deliveries.expires_at IS 'Of a test: the instant after which it is not sent.';

CREATE TABLE {schema}.tracked_states (
    channel        text COLLATE "C" NOT NULL,
    event          text COLLATE "C" NOT NULL,
    job_name       text COLLATE "C" NOT NULL DEFAULT '',
    scope_kind     text COLLATE "C" NOT NULL DEFAULT '',
    scope_id       text COLLATE "C" NOT NULL DEFAULT '',
    runner_id      text COLLATE "C" NOT NULL DEFAULT '',
    count          bigint NOT NULL DEFAULT 0 CHECK (count >= 0),
    since          timestamptz,
    last_alert_at  timestamptz,
    seen_plan_time timestamptz,
    execution_id   bigint,
    plan_time      timestamptz,
    summary        text NOT NULL DEFAULT '',
    details        jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (job_name, scope_kind, scope_id, runner_id, event, channel)
);
CREATE INDEX tracked_states_open ON {schema}.tracked_states (last_alert_at) WHERE since IS NOT NULL;
COMMENT ON TABLE {schema}.tracked_states IS 'What alerts are about: one row for each channel, event and (job, scope) or runner for which the event holds or has been counted. Written by raise_alerts(). Open states are read through the view alert_states.';
COMMENT ON COLUMN {schema}.tracked_states.channel IS 'The channel to which changes are sent.';
COMMENT ON COLUMN {schema}.tracked_states.event IS 'failed, overdue, late, skipped, deadline, violation, runner_lost or runner_failing.';
COMMENT ON COLUMN {schema}.tracked_states.job_name IS 'The job; empty: the ledger.';
COMMENT ON COLUMN {schema}.tracked_states.scope_kind IS 'Kind of the scope; empty: the state is not about one.';
COMMENT ON COLUMN {schema}.tracked_states.scope_id IS 'Id of the scope; empty: the state is not about one.';
COMMENT ON COLUMN {schema}.tracked_states.runner_id IS 'The runner; empty: the state is not about one.';
COMMENT ON COLUMN {schema}.tracked_states.count IS 'How often the event has occurred in a row; 0: it does not hold.';
COMMENT ON COLUMN {schema}.tracked_states.since IS 'When the state was opened; NULL: it is not open.';
COMMENT ON COLUMN {schema}.tracked_states.last_alert_at IS 'When an alert or a reminder was last raised for the open state.';
COMMENT ON COLUMN {schema}.tracked_states.seen_plan_time IS 'With the event skipped: skips up to this plan_time have been observed.';
COMMENT ON COLUMN {schema}.tracked_states.execution_id IS 'The execution that the last occurrence is about; NULL: none.';
COMMENT ON COLUMN {schema}.tracked_states.plan_time IS 'The plan_time that the last occurrence is about; NULL: none.';
COMMENT ON COLUMN {schema}.tracked_states.summary IS 'The last occurrence, as a sentence.';
COMMENT ON COLUMN {schema}.tracked_states.details IS 'The last occurrence, for programs.';

CREATE SEQUENCE {schema}.alert_id AS bigint;
CREATE TABLE {schema}.raised_alerts (
    id           bigint PRIMARY KEY DEFAULT nextval('{schema}.alert_id'),
    at           timestamptz NOT NULL,
    event        text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('opened', 'closed', 'reminder')),
    channel      text COLLATE "C" NOT NULL,
    since        timestamptz NOT NULL,
    count        bigint NOT NULL,
    job_name     text COLLATE "C",
    scope_kind   text COLLATE "C",
    scope_id     text COLLATE "C",
    runner_id    text COLLATE "C",
    execution_id bigint,
    plan_time    timestamptz,
    summary      text NOT NULL,
    details      jsonb NOT NULL,
    owner        text,
    labels       jsonb,
    delivery_id  bigint
);
CREATE INDEX raised_alerts_at ON {schema}.raised_alerts (at, id);
CREATE INDEX raised_alerts_job ON {schema}.raised_alerts (job_name, at, id) WHERE job_name IS NOT NULL;
-- A redaction finds the alerts about an execution.
CREATE INDEX raised_alerts_execution ON {schema}.raised_alerts (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX raised_alerts_delivery ON {schema}.raised_alerts (delivery_id, id) WHERE delivery_id IS NOT NULL;
CREATE INDEX raised_alerts_undelivered ON {schema}.raised_alerts (channel, id) WHERE delivery_id IS NULL;
COMMENT ON SEQUENCE {schema}.alert_id IS 'Numbers raised_alerts.';
COMMENT ON TABLE {schema}.raised_alerts IS 'Each change of a state, and each reminder, once for each channel. Written by raise_alerts(), read through the view alerts.';
COMMENT ON COLUMN {schema}.raised_alerts.id IS 'Id of the alert. Receivers recognise a repeated delivery by it.';
COMMENT ON COLUMN {schema}.raised_alerts.at IS 'When it was raised.';
COMMENT ON COLUMN {schema}.raised_alerts.event IS 'failed, recovered, overdue, late, skipped, deadline, violation, runner_lost or runner_failing.';
COMMENT ON COLUMN {schema}.raised_alerts.kind IS 'opened, closed or reminder.';
COMMENT ON COLUMN {schema}.raised_alerts.channel IS 'The channel to which it is delivered.';
COMMENT ON COLUMN {schema}.raised_alerts.since IS 'When the state was opened.';
COMMENT ON COLUMN {schema}.raised_alerts.count IS 'How often the event had occurred in a row.';
COMMENT ON COLUMN {schema}.raised_alerts.job_name IS 'The job; NULL: the alert is about the ledger.';
COMMENT ON COLUMN {schema}.raised_alerts.scope_kind IS 'Kind of the scope; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.scope_id IS 'Id of the scope; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.runner_id IS 'The runner; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.execution_id IS 'The execution; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.plan_time IS 'The plan_time; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.summary IS 'The alert as a sentence.';
COMMENT ON COLUMN {schema}.raised_alerts.details IS 'The alert for programs, such as status, error_code, error_msg and the end of the output.';
COMMENT ON COLUMN {schema}.raised_alerts.owner IS 'Owner of the job at that time; NULL: it had none.';
COMMENT ON COLUMN {schema}.raised_alerts.labels IS 'Labels of the job at that time; NULL or empty: it had none.';
COMMENT ON COLUMN {schema}.raised_alerts.delivery_id IS 'The delivery of the alert; NULL: none has been created yet.';

CREATE TABLE {schema}.alert_progress (
    singleton      boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    watching       boolean NOT NULL DEFAULT false,
    handled        pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
    since          timestamptz NOT NULL DEFAULT '-infinity',
    next_at        timestamptz NOT NULL DEFAULT '-infinity',
    examined       text[] COLLATE "C",
    writable_since timestamptz NOT NULL DEFAULT '-infinity',
    server_start   timestamptz
);
COMMENT ON TABLE {schema}.alert_progress IS 'Progress of raise_alerts(). One row.';
COMMENT ON COLUMN {schema}.alert_progress.singleton IS 'Always true: the table has one row.';
COMMENT ON COLUMN {schema}.alert_progress.watching IS 'Whether a job has notify, or a channel exists. Otherwise replicas do not call raise_alerts().';
COMMENT ON COLUMN {schema}.alert_progress.handled IS 'Changes that are visible in this snapshot have been observed.';
COMMENT ON COLUMN {schema}.alert_progress.since IS 'Events before this instant raise no alert.';
COMMENT ON COLUMN {schema}.alert_progress.next_at IS 'When events that have no change of an execution are next searched for.';
COMMENT ON COLUMN {schema}.alert_progress.examined IS 'Position of the pass over the open states of missed deadlines: job, scope kind, scope and channel of the last examined state. NULL: no pass is in progress.';
COMMENT ON COLUMN {schema}.alert_progress.writable_since IS 'The first run of raise_alerts() since the ledger was last out of reach or without a replica. A runner that has had less time than this to check in is not lost.';
COMMENT ON COLUMN {schema}.alert_progress.server_start IS 'When the server of the last run was started. It is only compared for equality.';
INSERT INTO {schema}.alert_progress DEFAULT VALUES;

-- Deadlines

-- The deadlines of a job with many scopes are computed in several transactions: a pass over its scopes.
CREATE TABLE {schema}.deadline_cursors (
    job_name   text COLLATE "C" PRIMARY KEY,
    through    timestamptz NOT NULL,
    next_at    timestamptz,
    upto       timestamptz,
    after_kind text COLLATE "C",
    after_id   text COLLATE "C",
    following  timestamptz,
    CONSTRAINT pass_columns CHECK ((upto IS NULL) = (after_kind IS NULL) AND (upto IS NULL) = (after_id IS NULL)
                                   AND (upto IS NOT NULL OR following IS NULL))
);
CREATE INDEX deadline_cursors_next ON {schema}.deadline_cursors (next_at) WHERE next_at IS NOT NULL;
COMMENT ON TABLE {schema}.deadline_cursors IS 'Jobs that have deadlines, or had them since the cursor.';
COMMENT ON COLUMN {schema}.deadline_cursors.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.deadline_cursors.through IS 'The deadlines of plan_times up to this instant are in deadlines, or are judged. Only grows.';
COMMENT ON COLUMN {schema}.deadline_cursors.next_at IS 'When the deadlines of later plan_times have to be computed: at the first of them, or after an edit. NULL: after the next edit.';
COMMENT ON COLUMN {schema}.deadline_cursors.upto IS 'The current pass over the scopes of the job: the cursor after it. NULL: there is none.';
COMMENT ON COLUMN {schema}.deadline_cursors.after_kind IS 'Kind of the last scope whose deadlines the pass has computed.';
COMMENT ON COLUMN {schema}.deadline_cursors.after_id IS 'Id of the last scope whose deadlines the pass has computed.';
COMMENT ON COLUMN {schema}.deadline_cursors.following IS 'next_at after the pass, of the scopes so far; NULL: they need none.';

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
COMMENT ON COLUMN {schema}.deadlines.look_at IS 'When the deadline is judged, or checked again.';

CREATE SEQUENCE {schema}.breach_id AS bigint;
CREATE TABLE {schema}.deadline_breaches (
    id            bigint NOT NULL DEFAULT nextval('{schema}.breach_id'),
    job_name      text COLLATE "C" NOT NULL,
    scope_kind    text COLLATE "C" NOT NULL,
    scope_id      text COLLATE "C" NOT NULL,
    plan_time     timestamptz NOT NULL,
    kind          text COLLATE "C" NOT NULL CHECK (kind IN ('start_by', 'finish_by', 'expect_duration')),
    execution_id  bigint,
    revision      bigint NOT NULL,
    deadline      timestamptz NOT NULL,
    month         date NOT NULL,
    breached_at   timestamptz NOT NULL,
    closed_at     timestamptz,
    look_at       timestamptz,
    recorded_xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (job_name, scope_kind, scope_id, plan_time, kind),
    CHECK ((closed_at IS NULL) = (look_at IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Not unique, as that of operator_actions.
CREATE INDEX deadline_breaches_id ON {schema}.deadline_breaches (id);
CREATE INDEX deadline_breaches_plan_time ON {schema}.deadline_breaches (plan_time);
CREATE INDEX deadline_breaches_recorded ON {schema}.deadline_breaches (recorded_xact);
CREATE INDEX deadline_breaches_open ON {schema}.deadline_breaches (look_at) WHERE closed_at IS NULL;
COMMENT ON SEQUENCE {schema}.breach_id IS 'Numbers breaches.';
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
COMMENT ON COLUMN {schema}.deadline_breaches.look_at IS 'When the breach is checked again; NULL: the deadline was met late.';
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

-- Hours: sums of the ended executions of each (job, scope) and hour, for questions that are too large for a query over
-- executions. The sweeper counts an hour when it is over, and again whenever one of its executions has changed.

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
    oldest_data     timestamptz,
    redacted_before timestamptz,
    PRIMARY KEY (job_name, scope_kind, scope_id, hour)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX rolled_up_hours_hour ON {schema}.rolled_up_hours (hour);
-- For a job with many scopes, of which the key would read all hours.
CREATE INDEX rolled_up_hours_job ON {schema}.rolled_up_hours (job_name, hour);
CREATE INDEX rolled_up_hours_data ON {schema}.rolled_up_hours (job_name, oldest_data) WHERE oldest_data IS NOT NULL;
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
COMMENT ON COLUMN {schema}.rolled_up_hours.starts IS 'Number of executions whose lateness is known: fired by the schedule, started once, and without a wait for required jobs.';
COMMENT ON COLUMN {schema}.rolled_up_hours.late_ms_sum IS 'Sum of their latenesses (started_at - due_at), in milliseconds.';
COMMENT ON COLUMN {schema}.rolled_up_hours.late_ms_min IS 'Least lateness, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.rolled_up_hours.late_ms_max IS 'Greatest lateness, in milliseconds; NULL: there is none.';
COMMENT ON COLUMN {schema}.rolled_up_hours.late_counts IS 'Number of latenesses in each bucket of estimated_quantile(), up to the last bucket that has any.';
COMMENT ON COLUMN {schema}.rolled_up_hours.rolled_up_at IS 'When the hour was last counted.';
COMMENT ON COLUMN {schema}.rolled_up_hours.oldest_data IS 'When the first of the executions ended whose data were not redacted; -infinity: not known, NULL: there are none.';
COMMENT ON COLUMN {schema}.rolled_up_hours.redacted_before IS 'While redact_outputs() is within this hour: the plan_time from which it goes on. Otherwise NULL.';

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
    complete_before timestamptz,
    restoring       boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE {schema}.roll_up_state IS 'Progress of the roll-up of hours. One row.';
COMMENT ON COLUMN {schema}.roll_up_state.singleton IS 'Always true: the table has one row.';
COMMENT ON COLUMN {schema}.roll_up_state.marked_before IS 'Hours changed by transactions with a lower number are marked in changed_hours, or are counted.';
COMMENT ON COLUMN {schema}.roll_up_state.marked_at IS 'When all changes that were committed had last been marked; NULL: never.';
COMMENT ON COLUMN {schema}.roll_up_state.complete_before IS 'Hours before this instant are counted with all changes up to marked_at; NULL: none.';
COMMENT ON COLUMN {schema}.roll_up_state.restoring IS 'Whether the hours of a restored dump are being marked, also those of transactions with numbers that this server has not reached.';
INSERT INTO {schema}.roll_up_state DEFAULT VALUES;

-- Verification

CREATE SEQUENCE {schema}.verification_id AS bigint;
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
    observed        boolean NOT NULL DEFAULT false,
    CONSTRAINT ended_columns CHECK ((finished_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT counted_columns CHECK (outcome IS NULL OR num_nulls(
        schedules, plan_times, executions, skips, behind, violations, accepted, kinds) = 0)
);
CREATE INDEX verification_runs_kept ON {schema}.verification_runs ((job_name IS NULL), id);
CREATE INDEX verification_runs_unobserved ON {schema}.verification_runs (finished_at, id) WHERE NOT observed;
COMMENT ON SEQUENCE {schema}.verification_id IS 'Numbers verification_runs.';
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
COMMENT ON COLUMN {schema}.verification_runs.observed IS 'Whether raise_alerts() has read the result of the run.';

CREATE SEQUENCE {schema}.acceptance_id AS bigint;
CREATE TABLE {schema}.acceptances (
    id                bigint PRIMARY KEY DEFAULT nextval('{schema}.acceptance_id'),
    kind              text COLLATE "C" NOT NULL,
    job_name          text COLLATE "C" NOT NULL,
    scope_kind        text COLLATE "C" NOT NULL,
    scope_id          text COLLATE "C" NOT NULL,
    plan_time         timestamptz NOT NULL CHECK (isfinite(plan_time)),
    through_plan_time timestamptz NOT NULL CHECK (isfinite(through_plan_time)),
    execution_id      bigint,
    reason            text NOT NULL CHECK (reason ~ '\S'),
    accepted_by       text NOT NULL,
    accepted_at       timestamptz NOT NULL DEFAULT {schema}.db_now(),
    withdrawn_by      text,
    withdrawn_at      timestamptz,
    CONSTRAINT acceptance_range CHECK (plan_time <= through_plan_time),
    CONSTRAINT withdrawn_columns CHECK ((withdrawn_at IS NULL) = (withdrawn_by IS NULL))
);
CREATE UNIQUE INDEX acceptances_hold ON {schema}.acceptances
    (job_name, scope_kind, scope_id, kind, plan_time, through_plan_time, coalesce(execution_id, 0))
    WHERE withdrawn_at IS NULL;
COMMENT ON SEQUENCE {schema}.acceptance_id IS 'Numbers acceptances.';
COMMENT ON TABLE {schema}.acceptances IS 'Violations that somebody has accepted, with the reason; written by accept_violation() and withdraw_acceptance().';
COMMENT ON COLUMN {schema}.acceptances.id IS 'Id of the acceptance, the argument of withdraw_acceptance().';
COMMENT ON COLUMN {schema}.acceptances.kind IS 'Kind of the violation.';
COMMENT ON COLUMN {schema}.acceptances.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.acceptances.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.acceptances.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.acceptances.plan_time IS 'First plan_time for which the violation is accepted.';
COMMENT ON COLUMN {schema}.acceptances.through_plan_time IS 'Last plan_time for which it is accepted.';
COMMENT ON COLUMN {schema}.acceptances.execution_id IS 'Execution that the violation names; NULL: none.';
COMMENT ON COLUMN {schema}.acceptances.reason IS 'Why it is accepted.';
COMMENT ON COLUMN {schema}.acceptances.accepted_by IS 'The person who accepted it.';
COMMENT ON COLUMN {schema}.acceptances.accepted_at IS 'When it was accepted.';
COMMENT ON COLUMN {schema}.acceptances.withdrawn_by IS 'The person who withdrew the acceptance.';
COMMENT ON COLUMN {schema}.acceptances.withdrawn_at IS 'When the acceptance was withdrawn; NULL: it holds.';

-- Sessions of the web page. They are in the ledger, so that each process of the page knows them, also after a restart.

CREATE TABLE {schema}.page_sessions (
    id         text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{64}$'),
    token      text NOT NULL CHECK (token ~ '^[0-9a-f]{64}$'),
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE {schema}.page_sessions IS 'The sessions of people who signed in on the web page with a token. Nobody can sign in with a dump of this table.';
COMMENT ON COLUMN {schema}.page_sessions.id IS 'SHA-256 of the random id that the browser has in its cookie.';
COMMENT ON COLUMN {schema}.page_sessions.token IS 'SHA-256 of the SHA-256 in the settings of the token with which the person signed in.';
COMMENT ON COLUMN {schema}.page_sessions.created_at IS 'When the person signed in.';
COMMENT ON COLUMN {schema}.page_sessions.expires_at IS 'When the session ends by itself.';

-- Saved views of the web page.

CREATE TABLE {schema}.saved_views (
    person     text COLLATE "C" NOT NULL CHECK (char_length(person) BETWEEN 1 AND 300),
    name       text COLLATE "C" NOT NULL CHECK (char_length(name) BETWEEN 1 AND 80),
    address    text NOT NULL CHECK (address ~ '^/ledger([?][!-~]+)?$' AND char_length(address) <= 2000),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (person, name)
);
COMMENT ON TABLE {schema}.saved_views IS 'Filters of the page Ledger that people saved under a name. save_view and delete_view write this table.';
COMMENT ON COLUMN {schema}.saved_views.person IS 'The login name of the person on the page.';
COMMENT ON COLUMN {schema}.saved_views.name IS 'The name of the view.';
COMMENT ON COLUMN {schema}.saved_views.address IS 'Path and query on the page, below its prefix.';
COMMENT ON COLUMN {schema}.saved_views.created_at IS 'When the person saved this address.';

-- Turns of steps that one process at a time may take. They are rows, because any login may take an advisory lock, and
-- could so stop alerts, deadlines, the roll-up of hours and the upkeep of partitions.

CREATE TABLE {schema}.turns (
    step     text COLLATE "C" PRIMARY KEY,
    taken_at timestamptz NOT NULL DEFAULT {schema}.db_clock()
) WITH (fillfactor = 50);
COMMENT ON TABLE {schema}.turns IS 'Steps that one process at a time runs: it locks the row of the step until the end of its transaction (take_turn). Also the turn of each scope provider, the lock of channels, and that of edits of jobs in chains.';
COMMENT ON COLUMN {schema}.turns.step IS 'alerts, deadlines, hosts, hours, partitions, channels, edits, or scopes of JOB.';
COMMENT ON COLUMN {schema}.turns.taken_at IS 'When the last transaction that ran the step took the turn. Of channels and edits: when the row was created.';
INSERT INTO {schema}.turns (step) VALUES ('alerts'), ('channels'), ('deadlines'), ('edits'), ('hosts'), ('hours'), ('partitions');

-- Provisional dates: what a transaction has written, until its COMMIT dates it (date_undated).

CREATE SEQUENCE {schema}.undated_id AS bigint;
CREATE TABLE {schema}.undated (
    id         bigint PRIMARY KEY DEFAULT nextval('{schema}.undated_id'),
    xact       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    job_name   text COLLATE "C" NOT NULL,
    revision   bigint,
    kinds      text[],
    scopes     text[],
    changes    text[],
    at         timestamptz NOT NULL,
    dated_at   timestamptz
);
COMMENT ON TABLE {schema}.undated IS 'Revisions and scopes that a transaction has written, and that its COMMIT dates. Each row is deleted before it is committed, so no other transaction sees it.';
COMMENT ON COLUMN {schema}.undated.id IS 'The order in which the transaction wrote them.';
COMMENT ON COLUMN {schema}.undated.xact IS 'The transaction.';
COMMENT ON COLUMN {schema}.undated.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.undated.revision IS 'The revision of the job to date; NULL: the row is about scopes of the job.';
COMMENT ON COLUMN {schema}.undated.kinds IS 'The scope_kind of each scope to date.';
COMMENT ON COLUMN {schema}.undated.scopes IS 'The scope_id of each scope to date.';
COMMENT ON COLUMN {schema}.undated.changes IS 'What happened to each scope: appears, returns or retires.';
COMMENT ON COLUMN {schema}.undated.at IS 'The provisional date in the rows to date.';
COMMENT ON COLUMN {schema}.undated.dated_at IS 'When the rows were dated; NULL: not yet.';
