-- Lists the jobs of which executions wait for required jobs: the one that has waited for longest, and their number, of the
-- first max_read. A NULL parameter does not restrict. No lock. Zero rows: nothing waits for another job.
SELECT w.job_name, w.scope_kind, w.scope_id, w.plan_time, w.id, w.due_at, w.waits_for, w.waits_until, w.executions,
       w.owner, j.timezone
FROM (
    SELECT n.*, count(*) OVER (PARTITION BY n.job_name) AS executions,
           row_number() OVER (PARTITION BY n.job_name ORDER BY n.plan_time, n.id) AS place
    FROM (SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.due_at, e.waits_for, e.waits_until, e.owner,
                 e.labels
          FROM {schema}.execution_status e
          WHERE e.status = 'PENDING' AND e.next_attempt_at IS NULL
          LIMIT %(max_read)s) n
    WHERE (%(owner)s::text IS NULL OR n.owner = %(owner)s::text)
      AND (%(label)s::text IS NULL OR {schema}_internal.has_label(n.labels, %(label)s::text))
) w
LEFT JOIN {schema}.job_details j ON j.name = w.job_name
WHERE w.place = 1
ORDER BY w.plan_time, w.job_name
LIMIT %(max_rows)s
