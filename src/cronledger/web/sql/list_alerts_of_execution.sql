-- Lists the alerts that name one execution, the newest first. They are found by the job, since the execution was created.
-- No lock. Zero rows: there is none.
SELECT a.id, a.at, a.event, a.kind, a.channel, a.summary, a.delivery_id, a.delivery_status, a.delivered_at
FROM {schema}.alerts a
WHERE a.job_name = %(job)s AND a.at >= %(since)s::timestamptz AND a.execution_id = %(id)s
ORDER BY a.at DESC, a.id DESC
LIMIT %(max_rows)s
