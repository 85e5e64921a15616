-- skip_missed has no rule of its own: each job is retired and returns at once. So job_revisions records it, the
-- planner settles as `missed` what was due before, and waiting executions are CANCELLED.
-- RUNNING rows are leases of runners of the original, which renew them there; in the copy they become stale.
-- After a requested cancel the sweeper ends them as CANCELLED, and they are not stolen. Otherwise they are
-- treated as after any crash.
-- Lock order: jobs by name (each with its schedules, then its waiting executions), executions by key, deliveries.
CREATE OR REPLACE FUNCTION {schema}.accept_database(
    skip_missed boolean, requested_by text DEFAULT NULL,
    OUT why text, OUT jobs bigint, OUT cancelled bigint, OUT asked_to_end bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    requester text := coalesce(requested_by, session_user) || ' (accept-database)';
    job       text;
    began     boolean;
BEGIN
    IF skip_missed IS NULL THEN
        RAISE EXCEPTION 'accept_database: skip_missed = NULL'
            USING HINT = 'true: plan_times that were due until now do not run here; false: catch_up decides.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    jobs := 0; cancelled := 0; asked_to_end := 0;
    PERFORM FROM {schema}.identity i FOR UPDATE;
    why := {schema}_internal.other_database();
    IF why IS NULL THEN
        UPDATE {schema}.identity i SET timeline = {schema}_internal.current_timeline(), failed_over_from = NULL
        WHERE NOT skip_missed AND EXISTS (SELECT FROM {schema}_internal.unconfirmed_failover());
        PERFORM {schema}_internal.record_action('accept_database', 'ledger', NULL, requested_by,
            CASE WHEN FOUND THEN 'done' ELSE 'unchanged' END,
            arguments => jsonb_build_object('skip_missed', skip_missed));
        RETURN;
    END IF;
    began := {schema}_internal.begin_action();
    IF skip_missed THEN
        FOR job IN SELECT j.name FROM {schema}.jobs j WHERE j.retired_at IS NULL ORDER BY j.name LOOP
            cancelled := cancelled + (SELECT count(*) FROM {schema}.executions e
                                      WHERE e.job_name = job AND e.next_attempt_at IS NOT NULL);
            UPDATE {schema}.jobs j SET retired_at = {schema}.db_clock(), edited_by = requester
            WHERE j.name = job;
            UPDATE {schema}.jobs j SET retired_at = NULL, edited_by = requester WHERE j.name = job;
            jobs := jobs + 1;
        END LOOP;
        WITH held AS MATERIALIZED (
            SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time FROM {schema}.executions e
            WHERE e.status = 'RUNNING' AND e.cancel_requested_at IS NULL
            ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time FOR NO KEY UPDATE
        ), asked AS (
            UPDATE {schema}.executions e
            SET cancel_requested_at = {schema}.db_clock(), cancel_requested_by = requester,
                updated_at = {schema}.db_clock()
            FROM held h
            WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
                = (h.job_name, h.scope_kind, h.scope_id, h.plan_time) AND e.status = (SELECT 'RUNNING')
            RETURNING 1
        ) SELECT count(*) INTO asked_to_end FROM asked;
        -- The original delivers these, and the alerts that have no delivery yet.
        UPDATE {schema}.deliveries d
        SET status = 'FAILED', due_at = NULL, lease_token = NULL, finished_at = {schema}.db_clock(), error_code = 'cancelled',
            error_msg = 'the delivery belongs to the ledger of which this one was a copy'
        WHERE d.due_at IS NOT NULL;
        PERFORM pg_notify('{schema}', 'cancel');
    END IF;
    -- A copy whose original is still in use is another ledger from now on, so that runners of the original
    -- are refused if they connect to it by mistake.
    INSERT INTO {schema}.identity AS i
        (system_identifier, database_oid, timeline, recorded_at, recorded_by)
    SELECT s.system_identifier, d.oid, {schema}_internal.current_timeline(), {schema}.db_clock(), requester
    FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
    ON CONFLICT (singleton) DO UPDATE
    SET system_identifier = EXCLUDED.system_identifier, database_oid = EXCLUDED.database_oid,
        timeline = EXCLUDED.timeline, failed_over_from = NULL, recorded_at = EXCLUDED.recorded_at,
        recorded_by = EXCLUDED.recorded_by,
        ledger_id = CASE WHEN skip_missed THEN gen_random_uuid() ELSE i.ledger_id END,
        copy_of = CASE WHEN skip_missed THEN i.ledger_id ELSE i.copy_of END;
    -- CREATE DATABASE copies how many numbers of a sequence need no further WAL record, which are at most 32. The copy
    -- has no such record, so that a crash or a failover before the next checkpoint would hand them out again.
    PERFORM nextval(c.oid::regclass) FROM pg_class c, generate_series(1, 33)
    WHERE c.relkind = 'S' AND c.relnamespace = '{schema}'::regnamespace;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('accept_database', 'ledger', NULL, requested_by, 'done',
        arguments => jsonb_build_object('skip_missed', skip_missed, 'why', why, 'jobs', jobs,
                                        'cancelled', cancelled, 'asked_to_end', asked_to_end));
    PERFORM pg_notify('{schema}', 'accepted');
END $$;
COMMENT ON FUNCTION {schema}.accept_database(boolean, text) IS 'Makes this database the ledger''s own, for example after a restore. With skip_missed, plan_times that were due until now become a skip with reason `missed`, waiting executions are CANCELLED, RUNNING ones are requested to end, and waiting deliveries of alerts are FAILED. Otherwise the policies of each job decide. why: what differed; NULL: nothing differed, and no job or execution was changed. Without skip_missed, this confirms a failover.';
