-- Writes how attempts ended. One row for each that was written: its token, its status, and whether
-- settle_inputs has to follow.
-- Lock: executions FOR NO KEY UPDATE in key order, waiting (a heartbeat or a cancel is short). A token that
-- does not come back was written already (a COMMIT of unknown outcome) or is lost; read_leases decides which.
SELECT f.token, f.status, f.has_input
FROM {schema}_internal.finish_executions(
    %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
    %(tokens)s::uuid[], %(statuses)s::text[], %(results)s::jsonb[], %(rows_affected)s::bigint[],
    %(outputs)s::text[], %(error_codes)s::text[], %(error_msgs)s::text[], %(durations_ms)s::bigint[],
    %(retries_after)s::interval[], %(watermarks)s::bigint[], %(covers)s::boolean[], %(first)s, %(last)s,
    %(traces)s::text[], %(with_windows)s::boolean) f
