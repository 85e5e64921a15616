-- Returns the revisions of each job that own plan_times after an instant, or one of a given number, the oldest first.
-- No lock: lock_deadlines keeps edits away. Zero rows for a job: it never existed.
SELECT r.job_name, r.number, r.effective_from, r.state, r.pause_ends, r.schedule, r.timezone, r.day_or, r.dst_gap,
       r.dst_fold, r.schedule_delay, r.jitter, r.starts_at, r.ends_at, r.start_by, r.finish_by, r.expect_duration
FROM {schema}_internal.deadline_revisions(%(jobs)s::text[], %(since)s::timestamptz[], %(numbers)s::bigint[]) r
