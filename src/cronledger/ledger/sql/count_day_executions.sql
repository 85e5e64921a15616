-- Counts the executions of one scope with plan_time in [start, end) by trigger and state.
-- seconds: the seconds since start of those that the schedule fired, of which a scope has at most 86,400 in a day.
-- All others have no seconds, and are counted by minute since start: those that were requested, and those of the
-- schedule whose plan_time is not a whole second, which no schedule names.
-- late: the first attempt started later than the grace of the execution's revision after due_at; `grace` is
-- that of the revisions that are not given. No lock. Zero rows: there are none.
SELECT CASE WHEN NOT p.fired THEN floor(s.second / 60)::integer END AS minute,
       e.trigger, e.status, e.next_attempt_at IS NOT NULL AS again,
       coalesce(e.first_started_at > e.due_at + coalesce(g.grace, %(grace)s::interval), false) AS late, count(*) AS count,
       array_agg(s.second::integer) FILTER (WHERE p.fired) AS seconds
FROM {schema}.execution_status e
CROSS JOIN LATERAL (SELECT date_part('epoch', e.plan_time - %(start)s::timestamptz) AS second) s
CROSS JOIN LATERAL (SELECT e.trigger = 'schedule' AND s.second = floor(s.second) AS fired) p
LEFT JOIN unnest(%(revisions)s::bigint[], %(graces)s::interval[]) g(revision, grace)
    ON g.revision = e.revision
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time >= %(start)s AND e.plan_time < %(end)s
GROUP BY 1, 2, 3, 4, 5
