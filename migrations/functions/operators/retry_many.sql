-- Operator function: retry many executions by the rules of `retry`, without force. Locks: their schedules by key,
-- then those that are FAILED or CANCELLED by key, both waiting. `retry` then finds all of its locks held.

CREATE OR REPLACE FUNCTION {schema}_internal.retry_one(
    held {schema}.executions, locked bigint[], preview boolean, requested_by text, OUT result text, OUT detail text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}_internal.check_retry(held, false);
    IF preview THEN
        result := CASE WHEN held.next_attempt_at IS NULL THEN 'retried' ELSE 'brought_forward' END;
    ELSIF held.id = ANY (locked) THEN
        result := {schema}.retry(held.id, false, requested_by);
    ELSE
        result := 'busy';
        detail := 'it ended at this moment';
    END IF;
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    result := 'left';
    detail := regexp_replace(SQLERRM, '^execution \d+: ', '');
END $$;
COMMENT ON FUNCTION {schema}_internal.retry_one({schema}.executions, bigint[], boolean, text) IS 'Retries one execution of retry_many if it is locked, or returns why not.';

CREATE OR REPLACE FUNCTION {schema}.retry_many(
    execution_ids bigint[], reason text DEFAULT NULL, preview boolean DEFAULT false, requested_by text DEFAULT NULL)
RETURNS TABLE (execution_id bigint, result text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    locked bigint[] := '{}';
BEGIN
    PERFORM {schema}_internal.check_execution_ids('retry_many', execution_ids);
    IF NOT preview THEN
        PERFORM FROM {schema}.schedules s
        WHERE (s.job_name, s.scope_kind, s.scope_id) IN (
            SELECT e.job_name, e.scope_kind, e.scope_id FROM {schema}.executions e WHERE e.id = ANY (execution_ids))
        ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE;
        SELECT coalesce(array_agg(l.id), '{}') INTO locked FROM (
            SELECT e.id FROM {schema}.executions e
            WHERE e.id = ANY (execution_ids) AND e.status IN ('FAILED', 'CANCELLED')
            ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time FOR UPDATE) l;
    END IF;
    RETURN QUERY SELECT m.* FROM {schema}_internal.act_on_many(
        'retry_many', execution_ids, locked, reason, preview, requested_by) m;
END $$;
COMMENT ON FUNCTION {schema}.retry_many(bigint[], text, boolean, text) IS 'Retries up to 1,000 executions, and returns what became of each: retried; brought_forward: it was awaiting a retry, which is due now; left: retry would refuse it, and detail states why; busy: it ended at this moment; unknown: it does not exist. With preview, nothing changes, and it returns what would become of each. Waits for the locks of the schedules and of the rows (lock_timeout).';
