-- Jobs for people: all of a row except what may hold secrets. Those columns are for operators and runners,
-- and even there variables, headers and passwords are masked.
CREATE OR REPLACE VIEW {schema}.job_details AS
SELECT j.name, j.revision, j.schedule, j.timezone, j.day_or, j.dst_gap, j.dst_fold, j.schedule_delay,
       j.jitter, j.starts_at, j.ends_at, j.grace, j.catch_up, j.catch_up_window, j.catch_up_limit,
       j.overlap, j.max_running, j.queue, j.handler, j.run_timeout, j.stale_timeout,
       j.allow_stale_reentry, j.max_attempts, j.retry_backoff, j.retry_jitter, j.scope_kind, j.scopes,
       j.description, j.source, j.deploy, j.paused_at, j.paused_by, j.paused_reason, j.paused_until,
       j.retired_at, j.edited_by, j.spec_error, j.target ->> 'function' AS function
FROM {schema}.jobs j;
COMMENT ON VIEW {schema}.job_details IS 'Jobs as they are defined, one row each, without target and payload.';
COMMENT ON COLUMN {schema}.job_details.name IS 'Identity of the job.';
COMMENT ON COLUMN {schema}.job_details.revision IS 'Counts the edits, pauses, resumes, retirements; set by a trigger.';
COMMENT ON COLUMN {schema}.job_details.schedule IS 'Cron text of five fields, or six with seconds first, @hourly and the like, @every 90s; NULL: runs only when triggered or enqueued.';
COMMENT ON COLUMN {schema}.job_details.timezone IS 'Zone whose wall clock the schedule means.';
COMMENT ON COLUMN {schema}.job_details.day_or IS 'true: day of month or day of week as in Debian''s cron; false: both must match.';
COMMENT ON COLUMN {schema}.job_details.dst_gap IS 'A fixed time swallowed by a gap: shift (right after it) or skip.';
COMMENT ON COLUMN {schema}.job_details.dst_fold IS 'A fixed time that occurs twice: first pass only, or both.';
COMMENT ON COLUMN {schema}.job_details.schedule_delay IS 'Starts this long after plan_time.';
COMMENT ON COLUMN {schema}.job_details.jitter IS 'Spreads starts over this long; the share of a plan_time is a hash that every replica agrees on.';
COMMENT ON COLUMN {schema}.job_details.starts_at IS 'No plan_time before this instant.';
COMMENT ON COLUMN {schema}.job_details.ends_at IS 'No plan_time after this instant.';
COMMENT ON COLUMN {schema}.job_details.grace IS 'How late the newest plan_time may start unquestioned; older ones were missed.';
COMMENT ON COLUMN {schema}.job_details.catch_up IS 'What becomes of missed plan_times: skip, latest, all.';
COMMENT ON COLUMN {schema}.job_details.catch_up_window IS 'What is missed for longer than this never runs.';
COMMENT ON COLUMN {schema}.job_details.catch_up_limit IS 'With catch_up = all: at most this many missed plan_times run, the newest.';
COMMENT ON COLUMN {schema}.job_details.overlap IS 'What a due plan_time does while its (job, scope) is RUNNING: skip, wait, allow, replace.';
COMMENT ON COLUMN {schema}.job_details.max_running IS 'Executions RUNNING at once over all scopes and replicas; NULL: no limit.';
COMMENT ON COLUMN {schema}.job_details.queue IS 'Which runners take it.';
COMMENT ON COLUMN {schema}.job_details.handler IS 'What kind of thing runs: python, command, sql, http, external.';
COMMENT ON COLUMN {schema}.job_details.run_timeout IS 'An attempt is stopped after this; NULL: never, while its lease is renewed.';
COMMENT ON COLUMN {schema}.job_details.stale_timeout IS 'Length of the lease; renewed every third of it.';
COMMENT ON COLUMN {schema}.job_details.allow_stale_reentry IS 'Reentrant: a stale lease may be stolen and the work run again.';
COMMENT ON COLUMN {schema}.job_details.max_attempts IS 'Attempts of one plan_time in all.';
COMMENT ON COLUMN {schema}.job_details.retry_backoff IS 'Wait before attempt 2, 3, …; the last one repeats.';
COMMENT ON COLUMN {schema}.job_details.retry_jitter IS 'Share of the backoff added at random, 0 to 1.';
COMMENT ON COLUMN {schema}.job_details.scope_kind IS 'What the scopes of this job are; global: one scope, global/global.';
COMMENT ON COLUMN {schema}.job_details.scopes IS 'The scope_ids when they are fixed; NULL with another kind than global: a scope provider answers them.';
COMMENT ON COLUMN {schema}.job_details.description IS 'For people.';
COMMENT ON COLUMN {schema}.job_details.source IS 'Which file or App declared it; NULL: SQL.';
COMMENT ON COLUMN {schema}.job_details.deploy IS 'Deploy of the source when it was last applied.';
COMMENT ON COLUMN {schema}.job_details.paused_at IS 'Since when nothing of it starts; NULL: not paused.';
COMMENT ON COLUMN {schema}.job_details.paused_by IS 'Who paused it.';
COMMENT ON COLUMN {schema}.job_details.paused_reason IS 'Why it is paused.';
COMMENT ON COLUMN {schema}.job_details.paused_until IS 'When the pause ends by itself; NULL: when resumed.';
COMMENT ON COLUMN {schema}.job_details.retired_at IS 'Since when it plans no more; NULL: it plans.';
COMMENT ON COLUMN {schema}.job_details.edited_by IS 'Who made the last edit; copied to job_revisions.requested_by.';
COMMENT ON COLUMN {schema}.job_details.spec_error IS 'Why it cannot be planned; cleared by the next edit.';
COMMENT ON COLUMN {schema}.job_details.function IS 'The Python function that runs; NULL with another handler.';

CREATE OR REPLACE VIEW {schema}.job_targets AS
SELECT j.name, {schema}.masked_target(j.target) AS target, j.payload FROM {schema}.jobs j;
COMMENT ON VIEW {schema}.job_targets IS 'What the jobs run, and with which payload.';
COMMENT ON COLUMN {schema}.job_targets.name IS 'The job.';
COMMENT ON COLUMN {schema}.job_targets.target IS 'What runs; the values of env and headers, and passwords in URLs, are ***.';
COMMENT ON COLUMN {schema}.job_targets.payload IS 'JSON handed to the handler.';

-- One row per job, where job_status has one per scope.
CREATE OR REPLACE VIEW {schema}.job_overview AS
SELECT j.name, j.schedule, j.timezone, j.queue, j.handler,
       CASE WHEN j.retired_at IS NOT NULL THEN 'retired'
            WHEN j.spec_error IS NOT NULL THEN 'broken'
            WHEN j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true)
            THEN 'paused' ELSE 'active' END AS state,
       s.scopes, s.parked, s.next_plan_time, r.running, l.plan_time AS last_plan_time,
       l.status AS last_status, j.paused_until, j.spec_error, j.source, j.description
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
COMMENT ON VIEW {schema}.job_overview IS 'Jobs and where they stand, one row each.';
COMMENT ON COLUMN {schema}.job_overview.name IS 'The job.';
COMMENT ON COLUMN {schema}.job_overview.schedule IS 'Cron text of five fields, or six with seconds first, @hourly and the like, @every 90s; NULL: runs only when triggered or enqueued.';
COMMENT ON COLUMN {schema}.job_overview.timezone IS 'Zone whose wall clock the schedule means.';
COMMENT ON COLUMN {schema}.job_overview.queue IS 'Which runners take it.';
COMMENT ON COLUMN {schema}.job_overview.handler IS 'What kind of thing runs: python, command, sql, http, external.';
COMMENT ON COLUMN {schema}.job_overview.state IS 'active, paused, retired, or broken: spec_error says why.';
COMMENT ON COLUMN {schema}.job_overview.scopes IS 'How many scopes it has.';
COMMENT ON COLUMN {schema}.job_overview.parked IS 'Why scopes of it are parked, each reason once.';
COMMENT ON COLUMN {schema}.job_overview.next_plan_time IS 'The soonest plan_time of its scopes that are not parked for good.';
COMMENT ON COLUMN {schema}.job_overview.running IS 'Executions RUNNING.';
COMMENT ON COLUMN {schema}.job_overview.last_plan_time IS 'Plan_time of the newest execution; NULL with more than 100 scopes.';
COMMENT ON COLUMN {schema}.job_overview.last_status IS 'Its status.';
COMMENT ON COLUMN {schema}.job_overview.paused_until IS 'When the pause ends by itself; NULL: when resumed.';
COMMENT ON COLUMN {schema}.job_overview.spec_error IS 'Why it cannot be planned; cleared by the next edit.';
COMMENT ON COLUMN {schema}.job_overview.source IS 'Which file or App declared it; NULL: SQL.';
COMMENT ON COLUMN {schema}.job_overview.description IS 'For people.';
