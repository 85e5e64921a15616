-- Lists what became of the plan_times of many scopes in [start, end), by scope (its place n in the arrays), cell
-- (the number of whole widths since start) and state: `ran`, `waiting`, another status, or the reason of a skip,
-- which is listed for each cell that it reaches into, with the count 0. Of each scope the newest max_rows
-- executions (its place in the array) are read, of which those of the schedule are listed, and as many skips. `read_from`: if a scope has as
-- many, the earliest plan_time that was read. No lock. Zero rows for a scope: nothing was planned.
SELECT t.n, c.cell, c.state, sum(c.count)::bigint AS count, max(c.read_from) AS read_from
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(max_rows)s::integer[])
    WITH ORDINALITY t(job, kind, scope, max_rows, n)
CROSS JOIN LATERAL (
    SELECT floor(date_part('epoch', e.plan_time - %(start)s::timestamptz)
                 / date_part('epoch', %(width)s::interval))::integer AS cell,
           CASE WHEN e.status = 'PENDING' OR e.next_attempt_at IS NOT NULL THEN 'waiting'
                WHEN e.status = 'SUCCESS' THEN 'ran' ELSE lower(e.status) END AS state,
           1 AS count, e.read_from
    FROM (
        SELECT r.*, CASE WHEN count(*) OVER () = t.max_rows THEN min(r.plan_time) OVER () END AS read_from
        FROM (
            SELECT x.plan_time, x.status, x.next_attempt_at, x.trigger FROM {schema}.execution_status x
            WHERE (x.job_name, x.scope_kind, x.scope_id) = (t.job, t.kind, t.scope)
              AND x.plan_time >= %(start)s AND x.plan_time < %(end)s
            ORDER BY x.plan_time DESC LIMIT t.max_rows
        ) r
    ) e
    WHERE e.trigger = 'schedule'
    UNION ALL
    SELECT DISTINCT g.cell, s.reason, 0, s.read_from
    FROM (
        SELECT r.*, CASE WHEN count(*) OVER () = t.max_rows
                         THEN min(r.from_plan_time) OVER () END AS read_from
        FROM (
            SELECT k.from_plan_time, k.through_plan_time, k.reason FROM {schema}.verify_skips k
            WHERE (k.job_name, k.scope_kind, k.scope_id) = (t.job, t.kind, t.scope)
              AND k.from_plan_time < %(end)s
            ORDER BY k.from_plan_time DESC LIMIT t.max_rows
        ) r
        WHERE r.through_plan_time >= %(start)s
    ) s
    CROSS JOIN LATERAL generate_series(
        floor(date_part('epoch', greatest(s.from_plan_time, %(start)s::timestamptz) - %(start)s::timestamptz)
              / date_part('epoch', %(width)s::interval))::integer,
        floor(date_part('epoch', least(s.through_plan_time, %(end)s::timestamptz - interval '1 s')
                        - %(start)s::timestamptz)
              / date_part('epoch', %(width)s::interval))::integer) g(cell)
) c
GROUP BY t.n, c.cell, c.state
