-- Operator function: cancel many executions by the rules of `cancel`. Lock: the executions by key, SKIP LOCKED.

CREATE OR REPLACE FUNCTION {schema}.cancel_many(
    execution_ids bigint[], reason text DEFAULT NULL, preview boolean DEFAULT false, requested_by text DEFAULT NULL)
RETURNS TABLE (execution_id bigint, result text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    began   boolean;
    seen    bigint[] := '{}';
    changed bigint[] := '{}';
    held    {schema}.executions;
BEGIN
    PERFORM {schema}_internal.check_execution_ids('cancel_many', execution_ids);
    IF NOT preview THEN
        began := {schema}_internal.begin_action();
    END IF;
    FOR held IN
        SELECT e.* FROM {schema}.executions e WHERE e.id = ANY (execution_ids)
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    LOOP
        execution_id := held.id;
        result := CASE WHEN preview THEN {schema}_internal.cancel_outcome(held)
                       ELSE {schema}.cancel(held.id, requested_by) END;
        detail := CASE result WHEN 'already_finished' THEN format('it is %s', held.status)
                              WHEN 'busy' THEN 'its row is locked' END;
        seen := seen || held.id;
        IF result IN ('cancelled', 'requested') THEN
            changed := changed || held.id;
        END IF;
        RETURN NEXT;
    END LOOP;
    RETURN QUERY SELECT DISTINCT u.id, 'unknown', 'it does not exist' FROM unnest(execution_ids) u(id)
                 WHERE u.id <> ALL (seen) ORDER BY 1;
    IF NOT preview THEN
        PERFORM {schema}_internal.end_action(began);
        PERFORM {schema}_internal.record_many('cancel_many', requested_by, changed,
            cardinality(execution_ids) - cardinality(changed), reason);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}.cancel_many(bigint[], text, boolean, text) IS 'Cancels up to 1,000 executions, and returns what became of each: cancelled, requested, already_finished or busy, as cancel returns it; unknown: it does not exist. detail states why one was left as it was. With preview, nothing changes, and it returns what would become of each.';
