-- Lists executions of which an attempt ran in [since, until): those with a plan_time in [planned_from, until), and
-- those that are RUNNING with an earlier one. A NULL job does not restrict; one job is read by the key of the ledger.
-- Those planned in the window come first: where they are max_rows, no earlier ones are searched. At most max_rows, in no
-- order. No lock. Zero rows: none.
SELECT s.id, s.job_name, s.scope_kind, s.scope_id, s.plan_time, s.queue, s.status, s.attempt, s.runner_id,
       s.started_at, s.finished_at, s.heartbeat_at, s.error_code, s.attempts
FROM (
    SELECT x.* FROM {schema}.execution_status x
    WHERE x.plan_time >= %(since)s::timestamptz AND x.plan_time < %(until)s::timestamptz
      AND (x.status IN ('RUNNING', 'PENDING') OR x.finished_at >= %(since)s::timestamptz)
    UNION ALL
    SELECT x.* FROM {schema}.execution_status x
    WHERE x.status = 'RUNNING' AND x.plan_time < %(planned_from)s::timestamptz
    UNION ALL
    SELECT x.* FROM {schema}.execution_status x
    WHERE x.plan_time >= %(planned_from)s::timestamptz AND x.plan_time < %(since)s::timestamptz
      AND (x.status IN ('RUNNING', 'PENDING') OR x.finished_at >= %(since)s::timestamptz)
) s
WHERE (%(job)s::text IS NULL OR s.job_name = %(job)s::text) AND s.first_started_at < %(until)s::timestamptz
LIMIT %(max_rows)s
