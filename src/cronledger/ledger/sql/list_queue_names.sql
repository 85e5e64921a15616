-- Lists the names of queues in use that begin with a prefix, by name. No lock. Zero rows: none does.
SELECT q.name
FROM {schema}.queue_status q
WHERE starts_with(q.name, %(prefix)s::text)
ORDER BY q.name COLLATE "C"
LIMIT %(max_rows)s
