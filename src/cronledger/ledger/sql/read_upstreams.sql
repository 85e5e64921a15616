-- Reads what decides whether gates are open: for each (gate, required scope), in the order of the arrays, how far the
-- required job is planned and whether a claim has to plan it again, its first execution in (after, through] that is not
-- a SUCCESS, the skips that reach into that interval, and the backfills in it that succeeded. One row for each element.
-- The skips include planned ones beyond the cursor: next_plan_time leaves out their plan_times before they are recorded.
-- A backfill that repeats a SUCCESS has a plan_time some microseconds later, and does not count.
-- A statement of its own after the locks of lock_gates. No lock.
SELECT s.job_name IS NOT NULL AND {schema}_internal.is_planned(s, u.through) AS planned,
       s.woken, s.parked, j.name IS NULL OR j.retired_at IS NOT NULL AS gone,
       x.plan_time, x.status, x.error_code, x.finished_at, x.next_attempt_at IS NOT NULL AS again,
       CASE WHEN x.plan_time IS NULL THEN k.skips END AS skips,
       CASE WHEN x.plan_time IS NULL AND k.skips IS NOT NULL THEN ARRAY(
           SELECT e.plan_time FROM {schema}.executions e
           WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope)
             AND e.plan_time > u.after AND e.plan_time <= u.through
             AND e.status = (SELECT 'SUCCESS') AND e.trigger = 'backfill') END AS backfilled
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(afters)s::timestamptz[],
            %(throughs)s::timestamptz[]) WITH ORDINALITY AS u(job, kind, scope, after, through, place)
LEFT JOIN LATERAL (SELECT j.* FROM {schema}.jobs j WHERE j.name = u.job LIMIT 1) j ON true
LEFT JOIN LATERAL (
    SELECT s.* FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope) LIMIT 1) s ON true
LEFT JOIN LATERAL (
    SELECT e.plan_time, e.status, e.error_code, e.finished_at, e.next_attempt_at FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope)
      AND e.plan_time > u.after AND e.plan_time <= u.through
      AND e.status <> (SELECT 'SUCCESS') AND e.trigger IN ('schedule', 'backfill')
      AND e.plan_time = date_trunc('second', e.plan_time)
    ORDER BY e.plan_time LIMIT 1) x ON {schema}_internal.is_planned(s, u.through)
LEFT JOIN LATERAL (
    SELECT json_agg(json_build_array(k.from_plan_time, k.through_plan_time, k.reason, k.revision)
                    ORDER BY k.from_plan_time) AS skips
    FROM (SELECT k.from_plan_time, k.through_plan_time, k.reason, k.revision FROM {schema}.skips k
          WHERE (k.job_name, k.scope_kind, k.scope_id) = (u.job, u.kind, u.scope)
            AND k.from_plan_time > u.after AND k.from_plan_time <= u.through
          UNION ALL
          (SELECT k.from_plan_time, k.through_plan_time, k.reason, k.revision FROM {schema}.skips k
           WHERE (k.job_name, k.scope_kind, k.scope_id) = (u.job, u.kind, u.scope) AND k.from_plan_time <= u.after
           ORDER BY k.from_plan_time DESC LIMIT 1)
          UNION ALL
          SELECT greatest(p.from_plan_time, s.planned_through + interval '1 us'), p.covered_through, 'operator', j.revision
          FROM {schema}.planned_skips p
          WHERE p.job_name = u.job AND p.covered_through > s.planned_through AND p.covered_through >= p.from_plan_time
            AND p.from_plan_time <= u.through
            AND (p.scope_id IS NULL OR (p.scope_kind, p.scope_id) = (u.kind, u.scope))) k
    WHERE k.through_plan_time > u.after AND k.reason <> 'calendar') k ON {schema}_internal.is_planned(s, u.through)
ORDER BY u.place
