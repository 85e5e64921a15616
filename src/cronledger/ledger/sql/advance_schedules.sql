-- Moves the cursors, in the transaction of the executions and skips that account for the way.
-- Lock: the schedule rows are held, so each is still at the address at which it was locked. A search by key would
-- visit every dead version of the row, so the key is compared by IS NOT DISTINCT FROM, which no index serves.
-- A cursor never goes back. The gap of a scope that returned is cleared once the cursor has passed it.
UPDATE {schema}.schedules s
SET planned_through = greatest(s.planned_through, u.through),
    planned_revision = greatest(s.planned_revision, u.revision),
    next_plan_time = u.next_plan, next_due_at = u.next_due, parked = u.parked, running_from = u.running_from,
    woken = false,
    retired_at = CASE WHEN s.returned_at <= u.through THEN NULL ELSE s.retired_at END,
    returned_at = CASE WHEN s.returned_at <= u.through THEN NULL ELSE s.returned_at END
FROM (SELECT * FROM unnest(
          %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(addresses)s::tid[], %(throughs)s::timestamptz[],
          %(revisions)s::bigint[], %(next_plans)s::timestamptz[], %(next_dues)s::timestamptz[],
          %(parked)s::text[], %(running_froms)s::timestamptz[]) LIMIT cardinality(%(jobs)s::text[]))
    AS u(job, kind, scope, address, through, revision, next_plan, next_due, parked, running_from)
WHERE s.ctid = u.address
  AND (s.job_name, s.scope_kind, s.scope_id) IS NOT DISTINCT FROM (u.job, u.kind, u.scope)
