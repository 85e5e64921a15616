-- Lists the alert states of one scope that are open, the longest first. No lock. Zero rows: none is open.
SELECT a.event, a.since, a.count, a.last_alert_at, a.summary, a.channel, a.execution_id, a.plan_time,
       a.job_name, a.scope_kind, a.scope_id
FROM {schema}.alert_states a
WHERE (a.job_name, a.scope_kind, a.scope_id) = (%(job)s, %(scope_kind)s, %(scope_id)s)
ORDER BY a.since, a.event, a.channel
LIMIT %(max_rows)s
