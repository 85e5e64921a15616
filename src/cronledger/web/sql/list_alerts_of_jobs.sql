-- Lists the events of open alert states of these jobs, with the number of their scopes. No lock. Zero rows for a job: no
-- alert of it is open.
SELECT a.job_name, a.event, count(DISTINCT (a.scope_kind, a.scope_id)) AS scopes
FROM {schema}.alert_states a
WHERE a.job_name = ANY (%(names)s::text[])
GROUP BY a.job_name, a.event
ORDER BY a.job_name, a.event
LIMIT %(max_rows)s
