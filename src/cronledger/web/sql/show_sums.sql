-- Returns the sums of the ended executions of one scope since an instant. No lock. Always one row.
SELECT s.success, s.failed, s.cancelled, s.retries, s.durations, s.duration_ms_sum, s.duration_ms_max,
       s.duration_ms_p50, s.duration_ms_p95, s.late_ms_max, s.late_ms_p50, s.late_ms_p95
FROM {schema}.execution_sums(%(job)s, %(scope_kind)s, %(scope_id)s, %(since)s, {schema}.db_now()) s
