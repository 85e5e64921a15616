-- What retry_many and cancel_many share: the rules of their arguments, the loop, and the row of the audit trail. No
-- lock but those of `retry` and `cancel`.

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

CREATE OR REPLACE FUNCTION {schema}_internal.act_on_many(
    function_name text, execution_ids bigint[], locked bigint[], reason text, preview boolean, requested_by text)
RETURNS TABLE (execution_id bigint, result text, detail text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    began   boolean;
    seen    bigint[] := '{}';
    changed bigint[] := '{}';
    held    {schema}.executions;
BEGIN
    IF NOT preview THEN
        began := {schema}_internal.begin_action();
    END IF;
    FOR held IN
        SELECT e.* FROM {schema}.executions e WHERE e.id = ANY (execution_ids)
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    LOOP
        execution_id := held.id;
        IF function_name = 'retry_many' THEN
            SELECT o.result, o.detail INTO result, detail
            FROM {schema}_internal.retry_one(held, locked, preview, requested_by) o;
        ELSE
            result := CASE WHEN preview THEN {schema}_internal.cancel_outcome(held)
                           ELSE {schema}.cancel(held.id, requested_by) END;
            detail := CASE result WHEN 'already_finished' THEN format('it is %s', held.status)
                                  WHEN 'busy' THEN 'its row is locked' END;
        END IF;
        seen := seen || held.id;
        IF result IN ('retried', 'brought_forward', 'cancelled', 'requested') THEN
            changed := changed || held.id;
        END IF;
        RETURN NEXT;
    END LOOP;
    RETURN QUERY SELECT DISTINCT u.id, 'unknown', 'it does not exist' FROM unnest(execution_ids) u(id)
                 WHERE u.id <> ALL (seen) ORDER BY 1;
    IF NOT preview THEN
        PERFORM {schema}_internal.end_action(began);
        PERFORM {schema}_internal.record_many(function_name, requested_by, changed,
            cardinality(execution_ids) - cardinality(changed), reason);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.act_on_many(text, bigint[], bigint[], text, boolean, text) IS 'Does what retry_many or cancel_many does, once the executions that may be retried are locked.';
