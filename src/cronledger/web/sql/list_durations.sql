-- Lists the newest executions of a scope that succeeded, with their durations, the oldest first. Reads at most
-- ten times as many rows. No lock. Zero rows: none of them succeeded.
SELECT d.*
FROM (
    SELECT n.id, n.plan_time, n.duration_ms, n.started_at - n.due_at AS late
    FROM (
        SELECT e.id, e.plan_time, e.status, e.duration_ms, e.started_at, e.due_at
        FROM {schema}.execution_status e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(scope_kind)s, %(scope_id)s)
        ORDER BY e.plan_time DESC LIMIT 10 * %(max_rows)s::bigint
    ) n
    WHERE n.status = 'SUCCESS' AND n.duration_ms IS NOT NULL
    ORDER BY n.plan_time DESC LIMIT %(max_rows)s
) d
ORDER BY d.plan_time
