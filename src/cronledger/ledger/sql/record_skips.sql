-- Records ranges of plan_times that did not run. A range extends the newest one of its schedule if it
-- follows without a gap, has the same reason, detail and revision, and no execution of the schedule lies between.
-- verify judges every plan_time of a range `missed` by created_at. So only those whose grace had ended then extend it,
-- by the definition in force at both times.
-- Lock: the schedule rows are held, so that only this transaction writes their skips. first: the first
-- range of its schedule in this step, the only one that can extend a stored one.
WITH u AS MATERIALIZED (
    SELECT * FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[],
        %(froms)s::timestamptz[], %(throughs)s::timestamptz[], %(counts)s::bigint[],
        %(reasons)s::text[], %(details)s::text[], %(blockers)s::bigint[], %(revisions)s::bigint[],
        %(first)s::boolean[])
        AS t(job, kind, scope, from_plan, through_plan, count, reason, detail, blocked_by, revision, is_first)
    LIMIT cardinality(%(jobs)s::text[])
), before AS MATERIALIZED (
    SELECT u.*, k.from_plan_time AS stored
    FROM u LEFT JOIN LATERAL (
        SELECT k.from_plan_time, k.through_plan_time, k.reason, k.detail, k.revision, k.created_at FROM {schema}.skips k
        WHERE (k.job_name, k.scope_kind, k.scope_id) = (u.job, u.kind, u.scope)
          AND k.from_plan_time < u.from_plan
        ORDER BY k.from_plan_time DESC LIMIT 1
    ) k ON u.is_first AND k.reason = u.reason AND k.revision = u.revision
        AND (u.reason <> 'missed' OR EXISTS (
            SELECT FROM {schema}.jobs j
            WHERE (j.name, j.revision) = (u.job, k.revision)
              AND u.through_plan + j.schedule_delay + j.jitter + j.grace < k.created_at))
        AND k.detail IS NOT DISTINCT FROM u.detail AND NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope)
          AND e.plan_time > k.through_plan_time AND e.plan_time < u.from_plan)
), extended AS (
    UPDATE {schema}.skips k
    SET through_plan_time = b.through_plan, count = k.count + b.count,
        blocked_by = coalesce(b.blocked_by, k.blocked_by),
        changed_xact = CASE WHEN k.reason IN ('overlap', 'missed', 'upstream', 'host_absent', 'not_reported')
                            THEN pg_current_xact_id() ELSE k.changed_xact END
    FROM before b
    WHERE (k.job_name, k.scope_kind, k.scope_id, k.from_plan_time) = (b.job, b.kind, b.scope, b.stored)
)
INSERT INTO {schema}.skips
    (job_name, scope_kind, scope_id, from_plan_time, through_plan_time, count, reason, detail, blocked_by, revision)
SELECT b.job COLLATE "C", b.kind COLLATE "C", b.scope COLLATE "C", b.from_plan, b.through_plan,
       b.count, b.reason, b.detail, b.blocked_by, b.revision
FROM before b WHERE b.stored IS NULL
ORDER BY 1, 2, 3, 4
