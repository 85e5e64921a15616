-- Lists the jobs of which something is overdue, one row for what is held on purpose (paused, or waiting for a limit or
-- for another execution) and one for the rest: the scope that is overdue for longest, and the number of its plan_times.
-- A NULL parameter does not restrict. No lock. Zero rows: nothing is overdue.
SELECT o.job_name, o.scope_kind, o.scope_id, o.plan_time, o.due_at, o.overdue_for, o.reason, o.detail, o.blocked_by,
       o.id, o.is_held, o.plan_times, o.owner, j.timezone
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY v.job_name, v.is_held) AS plan_times,
           row_number() OVER (PARTITION BY v.job_name, v.is_held ORDER BY v.due_at, v.scope_kind, v.scope_id) AS place
    FROM (SELECT x.*, x.reason IN ('paused', 'queue_paused', 'limit', 'waiting') AS is_held
          FROM {schema}.overdue x) v
    WHERE (%(owner)s::text IS NULL OR v.owner = %(owner)s::text)
      AND (%(label)s::text IS NULL OR {schema}_internal.has_label(v.labels, %(label)s::text))
) o
LEFT JOIN {schema}.job_details j ON j.name = o.job_name
WHERE o.place = 1
ORDER BY o.is_held, o.due_at, o.job_name
LIMIT %(max_rows)s
