-- Moves the cursors, in the transaction of the executions and skips that account for the way.
-- Lock: the schedule rows are held. A cursor never goes back. The gap of a scope that returned is cleared
-- once the cursor has passed it.
UPDATE {schema}.schedules s
SET planned_through = greatest(s.planned_through, u.through),
    planned_revision = greatest(s.planned_revision, u.revision),
    next_plan_time = u.next_plan, next_due_at = u.next_due, parked = u.parked,
    woken = false,
    retired_at = CASE WHEN s.returned_at <= u.through THEN NULL ELSE s.retired_at END,
    returned_at = CASE WHEN s.returned_at <= u.through THEN NULL ELSE s.returned_at END
FROM (SELECT * FROM unnest(
          %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(throughs)s::timestamptz[],
          %(revisions)s::bigint[], %(next_plans)s::timestamptz[], %(next_dues)s::timestamptz[],
          %(parked)s::text[]) LIMIT cardinality(%(jobs)s::text[]))
    AS u(job, kind, scope, through, revision, next_plan, next_due, parked)
WHERE (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope)
