-- Counts the executions of one scope with plan_time in [start, end) by minute since start, trigger and state.
-- seconds: bit n is set if one of them has its plan_time n whole seconds after the minute. plan_times of a
-- schedule are whole seconds and unique, so nothing is lost: a scope has at most 86,400 of them in a day.
-- late: the first attempt started later than the grace of the execution's revision after due_at; `grace` is
-- that of the revisions that are not given. No lock. Zero rows: there are none.
SELECT floor(date_part('epoch', e.plan_time - %(start)s::timestamptz) / 60)::integer AS minute,
       e.trigger, e.status, e.next_attempt_at IS NOT NULL AS again,
       coalesce(e.first_started_at > e.due_at + coalesce(g.grace, %(grace)s::interval), false) AS late, count(*) AS count,
       bit_or(1::bigint
              << mod(floor(date_part('epoch', e.plan_time - %(start)s::timestamptz))::integer, 60)) AS seconds
FROM {schema}.execution_status e
LEFT JOIN unnest(%(revisions)s::bigint[], %(graces)s::interval[]) g(revision, grace)
    ON g.revision = e.revision
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time >= %(start)s AND e.plan_time < %(end)s
GROUP BY 1, 2, 3, 4, 5
