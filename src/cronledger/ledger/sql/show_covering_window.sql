-- Returns the window of the next success of a scope after this plan_time, if it contains the plan_time. Windows form a
-- chain, so no other one does.
-- No lock. Zero rows: no later success has processed that time.
SELECT n.id, n.window_start, n.plan_time AS window_end
FROM (SELECT e.id, e.window_start, e.plan_time FROM {schema}.execution_status e
      WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
        AND e.plan_time > %(plan_time)s AND e.status = 'SUCCESS' AND e.trigger <> 'enqueue'
      ORDER BY e.plan_time LIMIT 1) n
WHERE n.window_start < %(plan_time)s
