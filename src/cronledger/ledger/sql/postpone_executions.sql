-- Returns executions to PENDING whose handlers are not ready, without counting the attempt, or ends them as FAILED
-- (not_ready) if their wait is over. One row for each: its token, its status, and no input to settle.
-- Lock: executions FOR NO KEY UPDATE in key order, waiting. A token that does not come back was ended by somebody else.
SELECT r.token, r.status, false AS has_input
FROM {schema}_internal.postpone_executions(
    %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
    %(tokens)s::uuid[], %(waits)s::interval[], %(messages)s::text[], %(durations_ms)s::bigint[],
    %(first)s, %(last)s) r
