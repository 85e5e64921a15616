-- An execution that waited while a later one succeeded must not run, because it would process the same data again.
CREATE OR REPLACE FUNCTION {schema}_internal.begin_windows(candidates {schema}_internal.claim_candidate[])
RETURNS {schema}_internal.claim_candidate[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    begun {schema}_internal.claim_candidate[];
    ended bigint;
BEGIN
    begun := ARRAY(
        SELECT ROW(c.job, c.kind, c.scope, c.plan, c.id, c.queue, c.steals, c.forced, c.lease, c.reentrant, c.input,
                   c.from_, c.windows,
                   -- A RUNNING row is not ended here. It has no window only if it is older than the windows of its job.
                   CASE WHEN NOT c.steals OR w.start < c.plan THEN w.start END)::{schema}_internal.claim_candidate
        FROM ROWS FROM (unnest(candidates)) WITH ORDINALITY
            AS c(job, kind, scope, plan, id, queue, steals, forced, lease, reentrant, input, from_, windows, start, place)
        LEFT JOIN LATERAL {schema}_internal.next_window(c.job, c.kind, c.scope) w(start) ON c.windows
        ORDER BY c.place);
    FOR ended IN
        WITH held AS MATERIALIZED (
            SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, b.window_start
            FROM (SELECT b.* FROM unnest(begun) b WHERE b.window_start >= b.plan_time LIMIT cardinality(begun)) b
            JOIN {schema}.executions e
                ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
                 = (b.job_name, b.scope_kind, b.scope_id, b.plan_time)
            WHERE e.next_attempt_at IS NOT NULL
            ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
            FOR UPDATE OF e SKIP LOCKED
        )
        UPDATE {schema}.executions e
        SET status = CASE e.status WHEN 'PENDING' THEN 'CANCELLED' ELSE e.status END, next_attempt_at = NULL,
            error_code = CASE e.status WHEN 'PENDING' THEN 'window_processed' ELSE e.error_code END,
            error_msg = CASE e.status WHEN 'PENDING' THEN '' ELSE coalesce(left(e.error_msg, 3800) || E'\n', '')
                                                                  || 'not retried: ' END
                || format('its window was processed by the execution of %s', h.window_start),
            finished_at = coalesce(e.finished_at, {schema}.db_clock()), updated_at = {schema}.db_clock(),
            changed_xact = pg_current_xact_id()
        FROM held h
        WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
            = (h.job_name, h.scope_kind, h.scope_id, h.plan_time)
        RETURNING e.id
    LOOP
        PERFORM pg_notify('{schema}_ended', ended::text);  -- for the programs that wait for it
    END LOOP;
    RETURN ARRAY(SELECT b FROM unnest(begun) b WHERE (b.window_start >= b.plan_time) IS NOT TRUE);
END $$;
COMMENT ON FUNCTION {schema}_internal.begin_windows({schema}_internal.claim_candidate[]) IS 'Returns these candidates with the starts of their windows, without those whose plan_time a window of a SUCCESS contains. These end: CANCELLED with error_code window_processed if they were PENDING, and otherwise FAILED without a further attempt. A row that is locked is left out, and stays as it is. The caller holds the locks of the schedules.';
