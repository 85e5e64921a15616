-- Lists the scopes of a job by kind and id, after a given one, with their cursor and newest execution. No lock.
-- Zero rows: there are no more.
SELECT s.scope_kind, s.scope_id, s.next_plan_time, s.parked, s.planned_through, s.retired_at, l.id AS last_id,
       l.plan_time AS last_plan_time, l.status AS last_status
FROM {schema}.verify_schedules s
LEFT JOIN LATERAL (
    SELECT e.id, e.plan_time, e.status FROM {schema}.execution_status e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
    ORDER BY e.plan_time DESC LIMIT 1
) l ON true
WHERE s.job_name = %(job)s AND (s.scope_kind, s.scope_id) > (%(after_kind)s, %(after_scope)s)
ORDER BY s.scope_kind, s.scope_id
LIMIT %(max_rows)s
