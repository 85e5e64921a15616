-- Lists the deadlines that were missed within the last day and not met since, one row for each kind of a job: the one
-- that was missed first, and the number of missed ones. They are searched for among the newest max_read breaches. A NULL
-- parameter does not restrict. No lock. Zero rows: none.
SELECT b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.execution_id, b.kind, b.deadline, b.owner, b.breaches,
       j.timezone
FROM (
    SELECT n.*, count(*) OVER (PARTITION BY n.job_name, n.kind) AS breaches,
           row_number() OVER (PARTITION BY n.job_name, n.kind ORDER BY n.deadline, n.scope_kind, n.scope_id) AS place
    FROM (SELECT x.* FROM {schema}.breaches x ORDER BY x.id DESC LIMIT %(max_read)s) n
    WHERE n.closed_at IS NULL AND n.breached_at > {schema}.db_now() - interval '1 day'
      AND (%(owner)s::text IS NULL OR n.owner = %(owner)s::text)
      AND (%(label)s::text IS NULL OR {schema}_internal.has_label(n.labels, %(label)s::text))
) b
LEFT JOIN {schema}.job_details j ON j.name = b.job_name
WHERE b.place = 1
ORDER BY b.deadline, b.job_name, b.kind
LIMIT %(max_rows)s
