-- Returns the revisions of each job that own plan_times after an instant, or one of a given number, the oldest first:
-- state and definition. No lock: lock_deadlines keeps edits away. Zero rows for a job: it never existed.
SELECT r.job_name, r.number, r.effective_from, r.state, r.pause_ends, d.*
FROM {schema}_internal.deadline_revisions(%(jobs)s::text[], %(since)s::timestamptz[], %(numbers)s::bigint[]) r
CROSS JOIN LATERAL unnest(ARRAY[r.definition]) d
