-- Oldest due schedules of the runner's queues, locked for this transaction; the oldest of all first,
-- because slots may not be enough for all of them.
-- Lock: schedules FOR NO KEY UPDATE, SKIP LOCKED (another replica has it). No join and no test on
-- jobs: what cannot start is parked and not in this index. not_here: jobs whose handler this runner
-- lacks and another one has. Zero rows: nothing is due.
SELECT d.job_name, d.scope_kind, d.scope_id, d.queue, d.planned_through, d.planned_revision,
       d.next_plan_time, d.retired_at, d.returned_at
FROM unnest(%(queues)s::text[]) AS q(name)
CROSS JOIN LATERAL (
    SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.planned_through, s.planned_revision,
           s.next_plan_time, s.retired_at, s.returned_at, s.next_due_at
    FROM {schema}.schedules s
    WHERE s.queue = q.name AND s.next_due_at <= {schema}.db_now()
      AND s.job_name <> ALL (%(not_here)s::text[])
    ORDER BY s.next_due_at LIMIT %(max_rows)s
    FOR NO KEY UPDATE OF s SKIP LOCKED
) d
WHERE NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = q.name AND p.paused_at IS NOT NULL)
ORDER BY d.next_due_at, d.job_name, d.scope_kind, d.scope_id
