-- Returns the schedules of these jobs. No lock. Zero rows: they have none.
SELECT s.job_name, s.scope_kind, s.scope_id, s.created_at, s.retired_at, s.returned_at
FROM {schema}_internal.deadline_schedules(%(jobs)s::text[]) s
