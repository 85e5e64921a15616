-- Requests that the RUNNING executions of these jobs end. One row for each: its id and the result of
-- {schema}.cancel.
-- Lock: executions FOR NO KEY UPDATE one by one in key order, SKIP LOCKED (`busy`: call again). Zero rows:
-- no execution has to be cancelled.
SELECT h.id, {schema}.cancel(h.id, %(requested_by)s) AS result
FROM (SELECT e.id FROM {schema}.executions e
      WHERE e.status = 'RUNNING' AND e.job_name = ANY (%(jobs)s::text[])
        AND e.cancel_requested_at IS NULL
      ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time) h
