-- Returns executions to PENDING with one more attempt: of a drain, or of a claim that never started them.
-- After a requested cancel they are CANCELLED instead. One row for each: its token, its status, and no input to settle.
-- Lock: executions FOR NO KEY UPDATE in key order, waiting. A token that does not come back was ended by
-- somebody else.
SELECT r.token, r.status, false AS has_input
FROM {schema}_internal.release_executions(
    %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
    %(tokens)s::uuid[], %(error_code)s::text, %(error_msg)s::text,
    %(first)s, %(last)s) r
