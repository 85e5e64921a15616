-- Lists scopes of a job by kind and id whose id contains a text, each with its newest execution. NULL: any text. No lock.
-- Zero rows: none matches.
SELECT s.scope_kind, s.scope_id, l.status, l.plan_time
FROM (
    SELECT v.scope_kind, v.scope_id FROM {schema}.verify_schedules v
    WHERE v.job_name = %(job)s::text AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
      AND (%(search)s::text IS NULL OR strpos(lower(v.scope_id), lower(%(search)s::text)) > 0)
    ORDER BY v.scope_kind, v.scope_id LIMIT %(max_rows)s
) s
LEFT JOIN LATERAL (
    SELECT e.status, e.plan_time FROM {schema}.execution_status e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s::text, s.scope_kind, s.scope_id)
      AND e.plan_time <= {schema}.db_now()
    ORDER BY e.plan_time DESC LIMIT 1
) l ON true
ORDER BY s.scope_kind, s.scope_id
