-- Returns the state of planning of one scope of a job. No lock. Zero rows: the job does not have this
-- scope.
SELECT s.* FROM {schema}.verify_schedules s
WHERE (s.job_name, s.scope_kind, s.scope_id) = (%(job)s, %(kind)s, %(scope)s)
