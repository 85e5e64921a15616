-- Returns the lateness in seconds within which 99 of 100 scheduled executions started: of the newest max_read
-- plan_times of the last hour, without those that were attempted again and those that waited for required jobs. No lock. Always
-- one row. NULL: there are none.
SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM n.started_at - n.due_at)::double precision) AS p99
FROM (SELECT e.started_at, e.due_at, e.trigger, e.attempt, e.gated_at FROM {schema}.execution_status e
      WHERE e.plan_time > {schema}.db_now() - interval '1 hour' AND e.plan_time <= {schema}.db_now()
      ORDER BY e.plan_time DESC LIMIT %(max_read)s) n
WHERE n.trigger = 'schedule' AND n.attempt = 1 AND n.started_at IS NOT NULL AND n.gated_at IS NULL
