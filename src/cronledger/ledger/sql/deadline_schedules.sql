-- Returns at most `most` schedules of these jobs, in the order of the jobs and of their scopes, with the retirements
-- that end after the cursor of the job. For each job, only those after a scope (NULL: all). No lock. Zero rows: there
-- are none.
SELECT s.job_name, s.scope_kind, s.scope_id, s.created_at, s.retired, s.returned
FROM {schema}_internal.deadline_schedules(%(jobs)s::text[], %(throughs)s::timestamptz[], %(after_kinds)s::text[],
                                          %(after_ids)s::text[], %(most)s) s
