CREATE OR REPLACE VIEW {schema}.upcoming AS
SELECT s.job_name, s.scope_kind, s.scope_id, s.next_plan_time AS plan_time, s.due_at,
       s.due_at - {schema}.db_now() AS due_in,
       {schema}_internal.local_time(s.next_plan_time, s.timezone) AS local_time, s.timezone, s.schedule, s.queue,
       s.owner, s.labels,
       (SELECT p.id FROM {schema}.pauses p
        WHERE p.ended_at IS NULL AND s.due_at >= p.from_at AND coalesce(s.due_at <= p.until_at, true)
          AND {schema}_internal.pause_covers(p, s.job)
        ORDER BY p.until_at DESC NULLS FIRST, p.id LIMIT 1) AS pause
FROM (
    -- Sorted before the zones are converted, so that a LIMIT converts only the rows that it returns.
    SELECT s.job_name, s.scope_kind, s.scope_id, s.next_plan_time,
           -- It is due earlier if it was edited, or to record plan_times that are skipped.
           greatest(s.next_due_at, s.next_plan_time) AS due_at, s.queue,
           j.timezone, j.schedule, j.owner, j.labels, j AS job
    FROM {schema}.schedules s JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.next_due_at IS NOT NULL AND s.next_plan_time IS NOT NULL AND j.retired_at IS NULL
      AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
    ORDER BY due_at, s.job_name, s.scope_kind, s.scope_id
) s;
COMMENT ON VIEW {schema}.upcoming IS 'The next plan_time of each (job, scope), the soonest first. Schedules that are parked or were never planned are in job_status only.';
COMMENT ON COLUMN {schema}.upcoming.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.upcoming.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.upcoming.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.upcoming.plan_time IS 'The next plan_time.';
COMMENT ON COLUMN {schema}.upcoming.due_at IS 'When it may start, with delay and jitter; plan_time, if the schedule is planned earlier because of an edit or of plan_times that are skipped.';
COMMENT ON COLUMN {schema}.upcoming.due_in IS 'Time until due_at; negative: it is overdue.';
COMMENT ON COLUMN {schema}.upcoming.local_time IS 'plan_time as local time in the time zone of the job.';
COMMENT ON COLUMN {schema}.upcoming.timezone IS 'Time zone of the schedule.';
COMMENT ON COLUMN {schema}.upcoming.schedule IS 'Cron text of the job.';
COMMENT ON COLUMN {schema}.upcoming.queue IS 'Queue of the job. Runners that serve it execute the job.';
COMMENT ON COLUMN {schema}.upcoming.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.upcoming.labels IS 'Current labels of the job; NULL or empty: it has none.';
COMMENT ON COLUMN {schema}.upcoming.pause IS 'The pause that will skip it, see pause_status; NULL: none is planned for that time.';
