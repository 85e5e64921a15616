-- Counts the rows of the view overdue by job, queue and reason, with the longest time in seconds. `executions` leaves
-- out the rows that are about a scope provider. No lock. Zero rows: nothing is overdue.
SELECT o.job_name, o.queue, o.reason, count(*) AS count, count(o.scope_id) AS executions,
       max(extract(epoch FROM o.overdue_for))::double precision AS seconds
FROM {schema}.overdue o
GROUP BY o.job_name, o.queue, o.reason
