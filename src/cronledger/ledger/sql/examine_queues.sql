-- Lists queues that have been paused for more than a day. No lock. Zero rows: there are none.
SELECT q.name, {schema}.db_now() - q.paused_at AS paused_for, q.paused_by, q.paused_reason
FROM {schema}.queue_status q
WHERE q.paused_at < {schema}.db_now() - interval '1 day'
ORDER BY q.name
