-- The identity of the database: views call other_database(); an operator may accept.
GRANT EXECUTE ON FUNCTION {schema}.other_database() TO PUBLIC;
DO $grants$
BEGIN
    IF EXISTS (SELECT FROM pg_roles p WHERE p.rolname = 'cronledger_operator') THEN
        GRANT EXECUTE ON FUNCTION {schema}.accept_database(boolean, text) TO cronledger_operator;
    END IF;
    IF EXISTS (SELECT FROM pg_roles p WHERE p.rolname = 'cronledger_runner') THEN
        GRANT EXECUTE ON FUNCTION {schema}.require_own_database() TO cronledger_runner;
    END IF;
END $grants$;
