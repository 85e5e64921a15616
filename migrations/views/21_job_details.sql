-- Jobs for people: all columns except those that may contain secrets. Operators and runners may read these,
-- with variables, headers and passwords masked.
CREATE OR REPLACE VIEW {schema}.job_details AS
SELECT j.name, j.revision, j.schedule, j.timezone, j.day_or, j.dst_gap, j.dst_fold, j.schedule_delay,
       j.jitter, j.starts_at, j.ends_at, j.grace, j.catch_up, j.catch_up_window, j.catch_up_limit,
       j.overlap, j.max_running, j.queue, j.handler, j.run_timeout, j.stale_timeout,
       j.allow_stale_reentry, j.max_attempts, j.retry_backoff, j.retry_jitter, j.scope_kind, j.scopes,
       j.description, j.source, j.deploy, j.paused_at, j.paused_by, j.paused_reason, j.paused_until,
       j.retired_at, j.edited_by, j.spec_error, j.target ->> 'python' AS function,
       j.retry_on, j.never_retry_on, j.payload_schema, j.owner, j.labels, j.notify,
       j.start_by, j.finish_by, j.expect_duration
FROM {schema}.jobs j;
COMMENT ON VIEW {schema}.job_details IS 'Jobs as they are defined, one row each, without target and payload.';
COMMENT ON COLUMN {schema}.job_details.name IS 'Name of the job.';
COMMENT ON COLUMN {schema}.job_details.revision IS 'Counts the edits, pauses, resumes, retirements; set by a trigger.';
COMMENT ON COLUMN {schema}.job_details.schedule IS 'Cron text of five fields, or six with seconds first, @hourly and the like, @every 90s; NULL: runs only when triggered or enqueued.';
COMMENT ON COLUMN {schema}.job_details.timezone IS 'Time zone of the schedule.';
COMMENT ON COLUMN {schema}.job_details.day_or IS 'true: day of month or day of week as in Debian''s cron; false: both must match.';
COMMENT ON COLUMN {schema}.job_details.dst_gap IS 'Rule for a fixed time that a clock change leaves out: shift (right after it) or skip.';
COMMENT ON COLUMN {schema}.job_details.dst_fold IS 'Rule for a fixed time that occurs twice: first (only the first pass) or both.';
COMMENT ON COLUMN {schema}.job_details.schedule_delay IS 'Starts this long after plan_time.';
COMMENT ON COLUMN {schema}.job_details.jitter IS 'Spreads starts over this long. The delay of a plan_time is derived from a hash, so that all replicas compute the same.';
COMMENT ON COLUMN {schema}.job_details.starts_at IS 'No plan_time before this instant.';
COMMENT ON COLUMN {schema}.job_details.ends_at IS 'No plan_time after this instant.';
COMMENT ON COLUMN {schema}.job_details.grace IS 'How late the newest plan_time may start before it counts as missed; older ones are missed.';
COMMENT ON COLUMN {schema}.job_details.catch_up IS 'Which missed plan_times run: skip (none), latest, all.';
COMMENT ON COLUMN {schema}.job_details.catch_up_window IS 'A plan_time that was missed longer ago than this never runs.';
COMMENT ON COLUMN {schema}.job_details.catch_up_limit IS 'With catch_up = all: at most this many missed plan_times run, the newest.';
COMMENT ON COLUMN {schema}.job_details.overlap IS 'Rule for a due plan_time while its (job, scope) is RUNNING: skip, wait, allow, replace.';
COMMENT ON COLUMN {schema}.job_details.max_running IS 'Executions RUNNING at once over all scopes and replicas; NULL: no limit.';
COMMENT ON COLUMN {schema}.job_details.queue IS 'Queue of the job. Runners that serve it execute the job.';
COMMENT ON COLUMN {schema}.job_details.handler IS 'Kind of handler: python, command, sql, http, external.';
COMMENT ON COLUMN {schema}.job_details.run_timeout IS 'An attempt is stopped after this; NULL: it may run for any length of time while its lease is renewed.';
COMMENT ON COLUMN {schema}.job_details.stale_timeout IS 'Length of the lease; renewed every third of it.';
COMMENT ON COLUMN {schema}.job_details.allow_stale_reentry IS 'Reentrant: a stale lease may be stolen and the work run again.';
COMMENT ON COLUMN {schema}.job_details.max_attempts IS 'Attempts of one plan_time in all.';
COMMENT ON COLUMN {schema}.job_details.retry_backoff IS 'Wait before attempt 2, 3, …; the last one repeats.';
COMMENT ON COLUMN {schema}.job_details.retry_jitter IS 'Share of the backoff added at random, 0 to 1.';
COMMENT ON COLUMN {schema}.job_details.scope_kind IS 'Kind of the scopes of this job; global: one scope, global/global.';
COMMENT ON COLUMN {schema}.job_details.scopes IS 'The scope_ids if they are fixed; NULL with another scope_kind than global: a scope provider returns them.';
COMMENT ON COLUMN {schema}.job_details.description IS 'Description for people.';
COMMENT ON COLUMN {schema}.job_details.source IS 'File or App that declared the job; NULL: SQL.';
COMMENT ON COLUMN {schema}.job_details.deploy IS 'Deploy of the source when it was last applied.';
COMMENT ON COLUMN {schema}.job_details.paused_at IS 'When the job was paused; NULL: it is not paused.';
COMMENT ON COLUMN {schema}.job_details.paused_by IS 'The person who paused it.';
COMMENT ON COLUMN {schema}.job_details.paused_reason IS 'Why it is paused.';
COMMENT ON COLUMN {schema}.job_details.paused_until IS 'When the pause ends by itself; NULL: it lasts until the job is resumed.';
COMMENT ON COLUMN {schema}.job_details.retired_at IS 'When the job was retired; NULL: it is not retired.';
COMMENT ON COLUMN {schema}.job_details.edited_by IS 'The person who made the last edit; copied to job_revisions.requested_by.';
COMMENT ON COLUMN {schema}.job_details.spec_error IS 'Why the job cannot be planned or run; cleared by the next edit.';
COMMENT ON COLUMN {schema}.job_details.function IS 'The Python function that runs; NULL with another handler.';
COMMENT ON COLUMN {schema}.job_details.retry_on IS 'Only failures that match one of these items are retried: names of exceptions, exit statuses, HTTP statuses, SQLSTATEs, error codes. NULL or empty: all failures.';
COMMENT ON COLUMN {schema}.job_details.never_retry_on IS 'Failures that match one of these items are not retried, even if they match retry_on. NULL or empty: none.';
COMMENT ON COLUMN {schema}.job_details.payload_schema IS 'JSON Schema of the payload, for people and forms; nothing is validated by it in SQL. NULL: any JSON.';
COMMENT ON COLUMN {schema}.job_details.owner IS 'The person or team that is responsible for the job; NULL: none is declared.';
COMMENT ON COLUMN {schema}.job_details.labels IS 'Labels of the job, such as {"team": "data"}; NULL or empty: none.';
COMMENT ON COLUMN {schema}.job_details.notify IS 'Rules for the alerts of the job; NULL or empty: no alerts.';

CREATE OR REPLACE VIEW {schema}.job_targets AS
SELECT j.name, {schema}_internal.masked_target(j.target) AS target, j.payload FROM {schema}.jobs j;
COMMENT ON VIEW {schema}.job_targets IS 'Targets and payloads of the jobs, one row each.';
COMMENT ON COLUMN {schema}.job_targets.name IS 'The job.';
COMMENT ON COLUMN {schema}.job_targets.target IS 'Target of the handler; the values of env and headers, and passwords in URLs, are ***.';
COMMENT ON COLUMN {schema}.job_targets.payload IS 'JSON that is passed to the handler.';

-- One row per job, where job_status has one per scope.
CREATE OR REPLACE VIEW {schema}.job_overview AS
SELECT j.name, j.schedule, j.timezone, j.queue, j.handler,
       CASE WHEN j.retired_at IS NOT NULL THEN 'retired'
            WHEN j.spec_error IS NOT NULL THEN 'broken'
            WHEN j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true)
            THEN 'paused' ELSE 'active' END AS state,
       s.scopes, s.parked, s.next_plan_time, r.running, l.plan_time AS last_plan_time,
       l.status AS last_status, j.paused_until, j.spec_error, j.source, j.description, j.owner, j.labels
FROM {schema}.jobs j
CROSS JOIN LATERAL (
    SELECT count(*) AS scopes,
           coalesce(array_agg(DISTINCT s.parked) FILTER (WHERE s.parked IS NOT NULL), '{}') AS parked,
           min(s.next_plan_time) FILTER (
               WHERE s.parked IS NULL OR s.parked IN ('waiting', 'limit', 'no_runner')
           ) AS next_plan_time
    FROM {schema}.schedules s
    WHERE s.job_name = j.name AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
) s
CROSS JOIN LATERAL (
    SELECT count(*) AS running FROM {schema}.executions e
    WHERE e.job_name = j.name AND e.status = 'RUNNING'
) r
LEFT JOIN LATERAL (
    SELECT n.plan_time, n.status
    FROM {schema}.schedules t
    CROSS JOIN LATERAL (
        SELECT e.plan_time, e.status FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (t.job_name, t.scope_kind, t.scope_id)
        ORDER BY e.plan_time DESC LIMIT 1
    ) n
    WHERE t.job_name = j.name AND s.scopes <= 100
    ORDER BY n.plan_time DESC LIMIT 1
) l ON true;
COMMENT ON VIEW {schema}.job_overview IS 'Jobs and their current state, one row each.';
COMMENT ON COLUMN {schema}.job_overview.name IS 'The job.';
COMMENT ON COLUMN {schema}.job_overview.schedule IS 'Cron text of five fields, or six with seconds first, @hourly and the like, @every 90s; NULL: runs only when triggered or enqueued.';
COMMENT ON COLUMN {schema}.job_overview.timezone IS 'Time zone of the schedule.';
COMMENT ON COLUMN {schema}.job_overview.queue IS 'Queue of the job. Runners that serve it execute the job.';
COMMENT ON COLUMN {schema}.job_overview.handler IS 'Kind of handler: python, command, sql, http, external.';
COMMENT ON COLUMN {schema}.job_overview.state IS 'active, paused, retired, or broken (spec_error contains the reason).';
COMMENT ON COLUMN {schema}.job_overview.scopes IS 'Number of scopes.';
COMMENT ON COLUMN {schema}.job_overview.parked IS 'Reasons for which scopes of the job are parked, each once.';
COMMENT ON COLUMN {schema}.job_overview.next_plan_time IS 'The soonest plan_time of its scopes that are not parked for good.';
COMMENT ON COLUMN {schema}.job_overview.running IS 'Number of executions that are RUNNING.';
COMMENT ON COLUMN {schema}.job_overview.last_plan_time IS 'Plan_time of the newest execution; NULL with more than 100 scopes.';
COMMENT ON COLUMN {schema}.job_overview.last_status IS 'Status of the newest execution; NULL with more than 100 scopes.';
COMMENT ON COLUMN {schema}.job_overview.paused_until IS 'When the pause ends by itself; NULL: it lasts until the job is resumed.';
COMMENT ON COLUMN {schema}.job_overview.spec_error IS 'Why the job cannot be planned or run; cleared by the next edit.';
COMMENT ON COLUMN {schema}.job_overview.source IS 'File or App that declared the job; NULL: SQL.';
COMMENT ON COLUMN {schema}.job_overview.description IS 'Description for people.';
COMMENT ON COLUMN {schema}.job_overview.owner IS 'The person or team that is responsible for the job; NULL: none is declared.';
COMMENT ON COLUMN {schema}.job_overview.labels IS 'Labels of the job, such as {"team": "data"}; NULL or empty: none.';
COMMENT ON COLUMN {schema}.job_details.start_by IS 'Deadline of the start: a wall time in the time zone of the job, or a duration after plan_time; NULL: none.';
COMMENT ON COLUMN {schema}.job_details.finish_by IS 'Deadline of the success, written like start_by; NULL: none.';
COMMENT ON COLUMN {schema}.job_details.expect_duration IS 'How long an attempt may take; a longer one is a breach. NULL: none.';
