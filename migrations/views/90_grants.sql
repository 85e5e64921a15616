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
            {schema}.runner_status, {schema}.crashes, {schema}.input_status, {schema}.attempts,
            {schema}.job_history, {schema}.violations TO %I', role);
        -- What verify reads besides; payloads, results and outputs stay with those who run.
        EXECUTE format('GRANT SELECT ON {schema}.verify_schedules, {schema}.verify_executions,
            {schema}.verify_skips TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION {schema}.history_violations(timestamptz),
            {schema}.recent_violations(), {schema}.present_violations(),
            {schema}.partitions() TO %I', role);
    END LOOP;
END $grants$;
