-- Lists a page of the jobs in the order of a column (`sort`: name, 24h, state, schedule, next, last, p95, queue, owner),
-- after `skipped` rows, with what the page shows of each. `total`, `all_failing` and `all_overdue` count all that match.
-- `failing` and `overdue` are objects of names of jobs, with their places in the order in which they need a person. A
-- NULL parameter does not restrict; retired jobs are listed only if `state` asks for them. The orders by `next` and
-- `last` look at the first max_scopes scopes of each job, and that by `24h` at the newest max_read failures, skips, sums
-- and executions of all jobs. Jobs without a value are last. `p95` is that of the last 30 executions that ended: of a
-- job with several scopes, of as many of each of its first 5 scopes. `streak` and `failing_since` are those of the last
-- 50 executions that ended, of jobs with one scope, which is named. No lock. Zero rows: none matches, or the page is
-- after the last one.
WITH day AS MATERIALIZED (  -- read only for the order by 24h
    SELECT n.job_name, ARRAY[sum(n.failed), sum(n.skipped), sum(n.executions)] AS sums
    FROM (
        (SELECT f.job_name, 1 AS failed, 0 AS skipped, 0 AS executions FROM {schema}.recent_failures f
         WHERE %(sort)s::text = '24h' AND f.finished_at > {schema}.db_now() - interval '1 day'
           AND f.plan_time > {schema}.db_now() - interval '1 day' AND f.trigger = 'schedule' AND NOT f.will_retry
         ORDER BY f.finished_at DESC LIMIT %(max_read)s)
        UNION ALL
        (SELECT s.job_name, 0,
                CASE WHEN s.from_plan_time > s.since THEN s.count
                     ELSE ceil(s.count * extract(epoch FROM s.through_plan_time - s.since)
                               / extract(epoch FROM s.through_plan_time - s.from_plan_time)) END, 0
         FROM (SELECT k.job_name, k.from_plan_time, k.through_plan_time, k.count, k.reason,
                      {schema}.db_now() - interval '1 day' AS since
               FROM {schema}.verify_skips k WHERE %(sort)s::text = '24h'
               ORDER BY k.from_plan_time DESC LIMIT %(max_read)s) s
         WHERE s.through_plan_time > s.since  -- a range may have begun long before
           AND s.reason IN ('missed', 'host_absent', 'not_reported', 'upstream', 'overlap'))
        UNION ALL
        (SELECT h.job_name, 0, 0, h.success + h.failed + h.cancelled FROM {schema}.execution_hours h
         WHERE %(sort)s::text = '24h' AND h.hour > {schema}.db_now() - interval '1 day'
           AND h.hour < {schema}.rolled_up_before()
         ORDER BY h.hour DESC LIMIT %(max_read)s)
        UNION ALL
        (SELECT e.job_name, 0, 0, 1 FROM {schema}.execution_status e  -- in hours that are not summed up yet
         WHERE %(sort)s::text = '24h' AND e.plan_time <= {schema}.db_now() AND e.plan_time
               >= greatest({schema}.rolled_up_before(), {schema}.db_now() - interval '1 day')
         ORDER BY e.plan_time DESC LIMIT %(max_read)s)
    ) n
    GROUP BY n.job_name
), matching AS MATERIALIZED (
    SELECT k.*, count(*) OVER () AS total, count(k.failing) OVER () AS all_failing,
           count(k.overdue) OVER () AS all_overdue
    FROM (
        SELECT x.name, f.failing, f.overdue, y.sums,
               CASE %(sort)s::text WHEN 'schedule' THEN x.schedule WHEN 'queue' THEN x.queue
                                   WHEN 'owner' THEN x.owner COLLATE "C" END AS words,
               CASE WHEN %(sort)s::text <> 'state' THEN NULL
                    WHEN x.state = 'broken' THEN 0 WHEN x.state IN ('paused', 'queue_paused') THEN 3
                    WHEN f.failing IS NOT NULL THEN 1 WHEN f.overdue IS NOT NULL THEN 2 ELSE 4 END AS rank,
               CASE %(sort)s::text
               WHEN 'next' THEN (
                   SELECT min(s.next_plan_time)
                   FROM (SELECT v.next_plan_time, v.parked FROM {schema}.verify_schedules v
                         WHERE v.job_name = x.name AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
                         LIMIT %(max_scopes)s) s
                   WHERE s.parked IS NULL OR s.parked IN ('waiting', 'limit', 'no_runner'))
               WHEN 'last' THEN (
                   SELECT max(n.plan_time)
                   FROM (SELECT v.scope_kind, v.scope_id FROM {schema}.verify_schedules v
                         WHERE v.job_name = x.name LIMIT %(max_scopes)s) s
                   CROSS JOIN LATERAL (
                       SELECT e.plan_time FROM {schema}.execution_status e
                       WHERE (e.job_name, e.scope_kind, e.scope_id) = (x.name, s.scope_kind, s.scope_id)
                         AND e.plan_time <= {schema}.db_now()  -- otherwise partitions of the future are searched
                       ORDER BY e.plan_time DESC LIMIT 1) n)
               END AS at
        FROM {schema}.job_details x
        CROSS JOIN LATERAL (  -- in an object, PostgreSQL searches a key in halves
            SELECT (%(failing)s::jsonb ->> x.name)::bigint AS failing, (%(overdue)s::jsonb ->> x.name)::bigint AS overdue
        ) f
        LEFT JOIN day y ON y.job_name = x.name
        WHERE (%(search)s::text IS NULL OR strpos(lower(x.name), lower(%(search)s::text)) > 0)
          AND (%(queue)s::text IS NULL OR x.queue = %(queue)s::text)
          AND (%(source)s::text IS NULL OR x.source = %(source)s::text)
          AND (%(owner)s::text IS NULL OR x.owner = %(owner)s::text)
          AND (%(label)s::text IS NULL OR {schema}_internal.has_label(x.labels, %(label)s::text))
          AND coalesce(x.state = %(state)s::text, x.retired_at IS NULL)
          AND CASE %(result)s::text
              WHEN 'failing' THEN f.failing IS NOT NULL
              WHEN 'overdue' THEN f.overdue IS NOT NULL
              WHEN 'never ran' THEN (  -- not EXISTS, which might read all executions
                  SELECT e.id FROM {schema}.execution_status e WHERE e.job_name = x.name LIMIT 1) IS NULL
              ELSE true END
    ) k
    ORDER BY CASE WHEN NOT %(descending)s::boolean THEN k.words END,
             CASE WHEN %(descending)s::boolean THEN k.words END DESC NULLS LAST,
             CASE WHEN NOT %(descending)s::boolean THEN k.rank END, CASE WHEN %(descending)s::boolean THEN k.rank END DESC,
             CASE WHEN NOT %(descending)s::boolean THEN k.at END,
             CASE WHEN %(descending)s::boolean THEN k.at END DESC NULLS LAST,
             CASE WHEN NOT %(descending)s::boolean THEN k.sums END,
             CASE WHEN %(descending)s::boolean THEN k.sums END DESC NULLS LAST,
             CASE WHEN %(sort)s::text = 'state' THEN coalesce(k.failing, k.overdue) END,
             CASE WHEN %(descending)s::boolean AND %(sort)s::text = 'name' THEN k.name END DESC, k.name
    -- All of them, if the order is by p95.
    LIMIT CASE WHEN %(sort)s::text <> 'p95' THEN %(max_rows)s::bigint END
    OFFSET CASE WHEN %(sort)s::text <> 'p95' THEN %(skipped)s::bigint ELSE 0 END
), measured AS MATERIALIZED (
    SELECT m.name, m.total, m.all_failing, m.all_overdue, p.p95, row_number() OVER () AS place
    FROM matching m
    CROSS JOIN LATERAL (
        SELECT percentile_disc(0.95) WITHIN GROUP (ORDER BY e.duration_ms) AS p95
        FROM (SELECT v.scope_kind, v.scope_id, count(*) OVER () AS scopes
              FROM (SELECT z.scope_kind, z.scope_id FROM {schema}.verify_schedules z
                    WHERE z.job_name = m.name AND (z.retired_at IS NULL OR z.returned_at IS NOT NULL)
                    ORDER BY z.scope_kind, z.scope_id LIMIT 5) v) s
        CROSS JOIN LATERAL (
            SELECT x.duration_ms FROM {schema}.execution_status x
            WHERE (x.job_name, x.scope_kind, x.scope_id) = (m.name, s.scope_kind, s.scope_id)
              AND x.status IN ('SUCCESS', 'FAILED') AND x.plan_time <= {schema}.db_now()
            ORDER BY x.plan_time DESC LIMIT 30 / s.scopes) e
    ) p
), ordered AS MATERIALIZED (
    SELECT n.* FROM (
        SELECT m.*, row_number() OVER (
                   ORDER BY CASE WHEN %(sort)s::text = 'p95' AND NOT %(descending)s::boolean THEN m.p95 END,
                            CASE WHEN %(sort)s::text = 'p95' AND %(descending)s::boolean THEN m.p95 END DESC NULLS LAST,
                            m.place) AS position
        FROM measured m) n
    ORDER BY n.position
    LIMIT %(max_rows)s OFFSET CASE WHEN %(sort)s::text = 'p95' THEN %(skipped)s::bigint ELSE 0 END
)
SELECT o.name, o.schedule, o.timezone, o.queue, o.state, o.scopes, o.parked, o.running, o.last_plan_time,
       o.last_status, o.source, o.description, o.owner, o.labels, o.spec_error, d.paused_by, d.paused_reason,
       d.queue_paused_by, d.queue_paused_reason,
       nullif(o.paused_until, 'infinity') AS paused_until, nullif(o.next_plan_time, 'infinity') AS next_plan_time,
       o.next_pause, m.p95, r.streak, r.failing_since, t.scope_kind, t.scope_id, m.total, m.all_failing, m.all_overdue,
       o.last_plan_time IS NULL
       AND (SELECT e.id FROM {schema}.execution_status e WHERE e.job_name = m.name LIMIT 1) IS NULL AS is_unrun
FROM ordered m
JOIN {schema}.job_overview o ON o.name = m.name
JOIN {schema}.job_details d ON d.name = m.name
LEFT JOIN LATERAL (
    SELECT v.job_name, v.scope_kind, v.scope_id FROM {schema}.verify_schedules v
    WHERE v.job_name = m.name AND o.scopes = 1 AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
    ORDER BY v.scope_kind, v.scope_id LIMIT 1
) t ON true
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.is_streak) AS streak,
           min(e.finished_at) FILTER (WHERE e.is_streak) AS failing_since
    FROM (SELECT n.finished_at, bool_and(n.status = 'FAILED') OVER (ORDER BY n.plan_time DESC) AS is_streak
          FROM (SELECT x.plan_time, x.status, x.finished_at
                FROM {schema}.execution_status x
                WHERE (x.job_name, x.scope_kind, x.scope_id) = (t.job_name, t.scope_kind, t.scope_id)
                  AND x.status IN ('SUCCESS', 'FAILED')
                ORDER BY x.plan_time DESC LIMIT 50) n) e
) r ON true
ORDER BY m.position
