-- Operator function: retry many executions by the rules of `retry`, without force. Locks: their schedules by key,
-- then those that are FAILED or CANCELLED by key, both waiting. `retry` then finds all of its locks held.

CREATE OR REPLACE FUNCTION {schema}_internal.check_execution_ids(function_name text, execution_ids bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(cardinality(execution_ids), 0) NOT BETWEEN 1 AND 1000 OR array_position(execution_ids, NULL) IS NOT NULL THEN
        RAISE EXCEPTION '%: execution_ids has % elements', function_name,
                CASE WHEN array_position(execution_ids, NULL) IS NULL
                     THEN coalesce(cardinality(execution_ids), 0)::text ELSE 'NULL among its' END
            USING HINT = 'Give 1 to 1000 ids of executions. Send further ids in another call.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_execution_ids(text, bigint[]) IS 'Raises unless these are 1 to 1000 ids.';

CREATE OR REPLACE FUNCTION {schema}_internal.record_many(
    function_name text, requested_by text, changed bigint[], left_alone bigint, reason text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    jobs text[] := ARRAY(SELECT DISTINCT e.job_name FROM {schema}.executions e WHERE e.id = ANY (changed) LIMIT 2);
BEGIN
    PERFORM {schema}_internal.record_action(function_name, 'execution', NULL, requested_by, 'done',
        CASE WHEN cardinality(jobs) = 1 THEN jobs[1] END, execution_ids => changed,
        arguments => jsonb_build_object('changed', cardinality(changed), 'left', left_alone), reason => reason);
END $$;
COMMENT ON FUNCTION {schema}_internal.record_many(text, text, bigint[], bigint, text) IS 'Records an action on many executions as one row: those that it changed, and how many it left as they were. The row names their job if they have only one.';

CREATE OR REPLACE FUNCTION {schema}.retry_many(
    execution_ids bigint[], reason text DEFAULT NULL, preview boolean DEFAULT false, requested_by text DEFAULT NULL)
RETURNS TABLE (execution_id bigint, result text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    began   boolean;
    locked  bigint[] := '{}';
    seen    bigint[] := '{}';
    changed bigint[] := '{}';
    held    {schema}.executions;
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
        began := {schema}_internal.begin_action();
    END IF;
    FOR held IN
        SELECT e.* FROM {schema}.executions e WHERE e.id = ANY (execution_ids)
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    LOOP
        execution_id := held.id;
        detail := NULL;
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
        END;
        seen := seen || held.id;
        IF result IN ('retried', 'brought_forward') THEN
            changed := changed || held.id;
        END IF;
        RETURN NEXT;
    END LOOP;
    RETURN QUERY SELECT DISTINCT u.id, 'unknown', 'it does not exist' FROM unnest(execution_ids) u(id)
                 WHERE u.id <> ALL (seen) ORDER BY 1;
    IF NOT preview THEN
        PERFORM {schema}_internal.end_action(began);
        PERFORM {schema}_internal.record_many('retry_many', requested_by, changed,
            cardinality(execution_ids) - cardinality(changed), reason);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}.retry_many(bigint[], text, boolean, text) IS 'Retries up to 1,000 executions, and returns what became of each: retried; brought_forward: it was awaiting a retry, which is due now; left: retry would refuse it, and detail states why; busy: it ended at this moment; unknown: it does not exist. With preview, nothing changes, and it returns what would become of each. Waits for the locks of the schedules and of the rows (lock_timeout).';
