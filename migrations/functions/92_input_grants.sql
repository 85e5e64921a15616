-- Who may give work and take results; the roles are made in 90_roles.sql, where there was the right to.
DO $grants$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT p.rolname FROM pg_roles p
        WHERE p.rolname IN ('cronledger_viewer', 'cronledger_operator', 'cronledger_runner')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION {schema}.is_dirty(text, text, text),
            {schema}.group_status(uuid) TO %I', role);
        CONTINUE WHEN role = 'cronledger_viewer';
        EXECUTE format('GRANT EXECUTE ON FUNCTION
            {schema}.enqueue(text, text, bigint, jsonb, text, text, uuid, text),
            {schema}.claim(text, text, text, text), {schema}.take_results(text, integer)
            TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles p WHERE p.rolname = 'cronledger_runner') THEN
        GRANT EXECUTE ON FUNCTION {schema}.settle_inputs(text[], text[], text[]),
            {schema}.settle_left_behind() TO cronledger_runner;
    END IF;
END $grants$;
