-- Three roles for people and replicas; what each may do is granted directly, so that they also work
-- where somebody else made them. Views are granted behind the views.

DO $roles$
DECLARE
    role record;
BEGIN
    FOR role IN SELECT * FROM (VALUES
        ('cronledger_viewer', 'May read the views of cronledger.'),
        ('cronledger_operator', 'May read the views of cronledger and call its operator functions.'),
        ('cronledger_runner', 'May do what a replica of cronledger does; changes no structure.'))
        AS r(name, comment)
    LOOP
        IF EXISTS (SELECT FROM pg_roles p WHERE p.rolname = role.name) THEN
            CONTINUE;
        END IF;
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role.name);
            EXECUTE format('COMMENT ON ROLE %I IS %L', role.name, role.comment);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL;  -- a migration of another database of this server was quicker
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'role % is not made: % may not create roles', role.name, current_user
                    USING HINT = format('Have CREATE ROLE %I NOLOGIN run, then migrate again.', role.name);
        END;
    END LOOP;
END $roles$;

COMMENT ON FUNCTION {schema}.db_now() IS 'The clock of everything: the instant at which the statement began.';
COMMENT ON FUNCTION {schema}.db_clock() IS 'The same clock, read now: for what is read after a lock wait.';

-- maintain_partitions and the operator functions run with their owner's rights. What views call has
-- to be open to whoever may read a view.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {schema}.db_now(), {schema}.db_clock(),
    {schema}.local_time(timestamptz, text), {schema}.partitions() TO PUBLIC;

DO $grants$
BEGIN
    IF EXISTS (SELECT FROM pg_roles p WHERE p.rolname = 'cronledger_viewer') THEN
        GRANT USAGE ON SCHEMA {schema} TO cronledger_viewer;
    END IF;
    IF EXISTS (SELECT FROM pg_roles p WHERE p.rolname = 'cronledger_operator') THEN
        GRANT USAGE ON SCHEMA {schema} TO cronledger_operator;
        GRANT EXECUTE ON FUNCTION
            {schema}.trigger(text, text, text, jsonb, boolean, text, boolean),
            {schema}.backfill(text, timestamptz[], text, text, text, integer, timestamptz, interval, text),
            {schema}.pause(text, text, timestamptz, text), {schema}.resume(text, text),
            {schema}.retire(text, text),
            {schema}.pause_queue(text, text, text), {schema}.resume_queue(text, text),
            {schema}.pause_all(text, text), {schema}.resume_all(text),
            {schema}.cancel(bigint, text), {schema}.retry(bigint, boolean, text)
            TO cronledger_operator;
    END IF;
    IF EXISTS (SELECT FROM pg_roles p WHERE p.rolname = 'cronledger_runner') THEN
        GRANT USAGE ON SCHEMA {schema} TO cronledger_runner;
        GRANT USAGE ON SEQUENCE {schema}.execution_id TO cronledger_runner;
        GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO cronledger_runner;
        -- Locking a row needs the right to update it.
        GRANT INSERT, UPDATE ON {schema}.queues, {schema}.jobs, {schema}.schedules,
            {schema}.executions, {schema}.skips, {schema}.runners, {schema}.sources
            TO cronledger_runner;
        GRANT DELETE ON {schema}.runners TO cronledger_runner;
        GRANT EXECUTE ON FUNCTION
            {schema}.trigger(text, text, text, jsonb, boolean, text, boolean),
            {schema}.backfill(text, timestamptz[], text, text, text, integer, timestamptz, interval, text),
            {schema}.pause(text, text, timestamptz, text), {schema}.resume(text, text),
            {schema}.retire(text, text), {schema}.cancel(bigint, text),
            {schema}.retry(bigint, boolean, text), {schema}.assert_lease(bigint, uuid),
            {schema}.set_scopes(text, text, text[], timestamptz),
            {schema}.queues_in_use(), {schema}.backfill_actions({schema}.jobs, {schema}.schedules, timestamptz[], text, timestamptz),
            {schema}.make_partitions_for(timestamptz[]),
            {schema}.maintain_partitions(interval, interval, interval)
            TO cronledger_runner;
    END IF;
END $grants$;
