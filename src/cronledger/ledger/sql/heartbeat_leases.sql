-- Renews leases. One row for each renewed lease: its token, and whether a cancel was requested. done, total, texts: what
-- the executions have reported since the last heartbeat; NULL: none has.
-- Lock: executions FOR NO KEY UPDATE in key order, SKIP LOCKED; then rows of execution_progress. A token that does not come back is either
-- busy or lost; read_leases decides which.
SELECT h.token, h.cancel_requested
FROM {schema}_internal.heartbeat_leases(
    %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
    %(tokens)s::uuid[], %(stale_timeouts)s::interval[],
    %(first)s, %(last)s,
    %(done)s::bigint[], %(total)s::bigint[], %(texts)s::text[]) h
