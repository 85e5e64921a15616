-- Counts the executions of one scope with plan_time in [first, before) that wait, await a retry or are
-- RUNNING. No lock. Uses only the partial indexes, so ended executions cost nothing. Always one row.
SELECT (SELECT count(*) FROM {schema}.execution_status e
        WHERE e.job_name = %(job)s AND e.next_attempt_at IS NOT NULL
          AND (e.scope_kind, e.scope_id) = (%(kind)s, %(scope)s)
          AND e.plan_time >= %(first)s AND e.plan_time < %(before)s)
     + (SELECT count(*) FROM {schema}.execution_status e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
          AND e.status = 'RUNNING'
          AND e.plan_time >= %(first)s AND e.plan_time < %(before)s) AS unfinished
