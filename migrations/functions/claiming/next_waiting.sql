-- plpgsql, because mostly nothing waits, and a statement that does not run costs nothing. PostgreSQL would prepare the
-- search of every partition before the first row is read.
CREATE OR REPLACE FUNCTION {schema}_internal.next_waiting(since timestamptz)
RETURNS TABLE (at timestamptz) LANGUAGE plpgsql STABLE ROWS 1 AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT min(n.next_attempt_at) FROM {schema}_internal.waiting_jobs() d CROSS JOIN LATERAL (
        SELECT e.next_attempt_at FROM {schema}.executions e
        WHERE e.job_name = d.job_name AND e.next_attempt_at > since
        ORDER BY e.next_attempt_at LIMIT 1) n;
END $$;
COMMENT ON FUNCTION {schema}_internal.next_waiting(timestamptz) IS 'Returns when the next execution that is PENDING or awaits a retry is due after since. NULL, or no row: none is. Locks nothing.';
