-- Where planning stands for one scope of a job. No lock. Zero rows: it has no such scope.
SELECT s.* FROM {schema}.verify_schedules s
WHERE (s.job_name, s.scope_kind, s.scope_id) = (%(job)s, %(kind)s, %(scope)s)
