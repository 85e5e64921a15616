-- Lists the durations of one scope by hour since an instant, as the sums by hour estimate them. No lock. Zero rows: none
-- of its executions ended in an hour that is counted.
SELECT h.hour, h.success, h.failed, h.duration_ms_p50 AS p50, h.duration_ms_p95 AS p95, h.duration_ms_max AS longest
FROM {schema}.execution_hours h
WHERE (h.job_name, h.scope_kind, h.scope_id) = (%(job)s::text, %(scope_kind)s::text, %(scope_id)s::text)
  AND h.hour >= %(since)s::timestamptz AND (h.durations > 0 OR h.failed > 0)
ORDER BY h.hour
LIMIT %(max_rows)s
