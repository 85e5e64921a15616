-- Who may read the views; the roles are made in functions/90_roles.sql, where there was the right to.
DO $grants$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT p.rolname FROM pg_roles p
        WHERE p.rolname IN ('cronledger_viewer', 'cronledger_operator', 'cronledger_runner')
    LOOP
        EXECUTE format('GRANT SELECT ON {schema}.ledger, {schema}.job_status, {schema}.running,
            {schema}.overdue, {schema}.recent_failures, {schema}.upcoming, {schema}.lateness,
            {schema}.runner_status, {schema}.crashes, {schema}.input_status TO %I', role);
    END LOOP;
END $grants$;
