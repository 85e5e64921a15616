-- Lists RUNNING executions whose lease has ended although nobody took them over or ended them, the earliest first, at
-- most max_rows. No lock. Zero rows: there are none.
SELECT o.id, o.job_name, o.detail FROM {schema}.overdue o
WHERE o.reason = 'lease_expired'
ORDER BY o.due_at, o.id
LIMIT %(max_rows)s
