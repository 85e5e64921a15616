-- Gives a job exactly these scopes from now on. One row: how many appeared, returned and retired.
-- Lock: the schedules of the job by key, waiting. A retired job keeps its scopes: all zero.
SELECT r.appeared, r.returned, r.retired
FROM {schema}.jobs j
CROSS JOIN LATERAL {schema}_internal.set_scopes(j.name, %(kind)s::text, %(scopes)s::text[]) r
WHERE j.name = %(job)s AND j.retired_at IS NULL AND j.scope_kind = %(kind)s
