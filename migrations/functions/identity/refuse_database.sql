CREATE OR REPLACE FUNCTION {schema}.refuse_database(requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    refused boolean;
BEGIN
    PERFORM FROM {schema}.identity i FOR UPDATE;
    refused := {schema}_internal.other_database() IS NULL;
    IF refused THEN
        UPDATE {schema}.identity i
        SET database_oid = 0, recorded_at = {schema}.db_clock(), recorded_by = coalesce(requested_by, session_user);
    END IF;
    PERFORM {schema}_internal.record_action('refuse_database', 'ledger', NULL, requested_by,
        CASE WHEN refused THEN 'done' ELSE 'unchanged' END);
    RETURN refused;
END $$;
COMMENT ON FUNCTION {schema}.refuse_database(text) IS 'Marks this database as a copy: nothing is planned or started in it until accept_database. RUNNING executions continue. Returns false if it is already not the ledger''s own.';
