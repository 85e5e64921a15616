-- Operator function: cancel many executions by the rules of `cancel`. Lock: the executions by key, SKIP LOCKED.

CREATE OR REPLACE FUNCTION {schema}.cancel_many(
    execution_ids bigint[], reason text DEFAULT NULL, preview boolean DEFAULT false, requested_by text DEFAULT NULL)
RETURNS TABLE (execution_id bigint, result text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM {schema}_internal.check_execution_ids('cancel_many', execution_ids);
    RETURN QUERY SELECT m.* FROM {schema}_internal.act_on_many(
        'cancel_many', execution_ids, '{}', reason, preview, requested_by) m;
END $$;
COMMENT ON FUNCTION {schema}.cancel_many(bigint[], text, boolean, text) IS 'Cancels up to 1,000 executions, and returns what became of each: cancelled, requested, already_finished or busy, as cancel returns it; unknown: it does not exist. detail states why one was left as it was. With preview, nothing changes, and it returns what would become of each.';
