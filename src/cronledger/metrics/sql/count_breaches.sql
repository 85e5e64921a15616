-- Counts by job and kind the deadlines that were missed within the last day and not met since. They are searched for among the
-- newest max_read breaches. No lock. Zero rows: there are none.
SELECT b.job_name, b.kind, count(*) AS count
FROM (SELECT n.job_name, n.kind, n.closed_at, n.breached_at FROM {schema}.breaches n ORDER BY n.id DESC LIMIT %(max_read)s) b
WHERE b.closed_at IS NULL AND b.breached_at > {schema}.db_now() - interval '1 day'
GROUP BY b.job_name, b.kind
