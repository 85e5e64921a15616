-- The identity of the database in which the ledger was created or accepted. The original of a restored or
-- cloned database may still be in use, so nothing is claimed in the copy until accept_database is called.
-- The check is in claim_due, in the transaction that would plan and start. So it holds for replicas and for
-- workers in other languages, even if their connection now leads elsewhere.

-- The control file contains a new timeline only after the checkpoint that follows the promotion, which may take
-- minutes. The name of the WAL segment contains it at once, but not on a standby.
CREATE OR REPLACE FUNCTION {schema}_internal.current_timeline() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN (SELECT c.timeline_id FROM pg_control_checkpoint() c);
    END IF;
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer;
END $$;
COMMENT ON FUNCTION {schema}_internal.current_timeline() IS 'Returns the timeline that this server writes. A promotion begins a new one.';

-- STABLE, so that it does not see what the calling statement itself writes into runners.
-- A server process stores the row of `identity` in a setting of its session once the row matches. Later calls compare
-- the row with that setting, because the rest cannot change: a process has one database on one server, and a
-- primary keeps its timeline. Nothing is stored on a standby, or before a check-in has recorded a failover.
CREATE OR REPLACE FUNCTION {schema}_internal.other_database() RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    home     {schema}.identity;
    system   bigint := (SELECT s.system_identifier FROM pg_control_system() s);
    here     oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    timeline integer := {schema}_internal.current_timeline();
BEGIN
    SELECT i.* INTO home FROM {schema}.identity i;
    IF NOT FOUND THEN
        RETURN 'its table identity is empty';
    ELSIF home.system_identifier <> system THEN
        RETURN format('the ledger belongs to the server with system identifier %s, and this server has %s',
                      home.system_identifier, system);
    ELSIF home.database_oid <> here THEN
        RETURN format('the ledger belongs to the database with oid %s, and %s has oid %s',
                      home.database_oid, current_database(), here);
    ELSIF home.timeline <> timeline AND NOT EXISTS (
            SELECT FROM {schema}.runners r
            WHERE r.timeline = home.timeline
              AND r.heartbeat_at > {schema}.db_now() - interval '10 minutes') THEN
        RETURN format('the ledger is on timeline %s, this server writes timeline %s, and no runner '
                      'checked in on timeline %s in the last 10 minutes, as one does before a failover',
                      home.timeline, timeline, home.timeline);
    ELSIF home.timeline = timeline AND NOT pg_is_in_recovery() THEN
        PERFORM set_config('cronledger.own_database', home::text, false);
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.other_database() IS 'Returns why this is not the database of the ledger, but a restored or cloned one. NULL: it is the ledger''s own, perhaps after a failover.';

CREATE OR REPLACE FUNCTION {schema}_internal.require_own_database() RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    home {schema}.identity;
    why  text;
BEGIN
    SELECT i.* INTO home FROM {schema}.identity i;
    IF home::text = current_setting('cronledger.own_database', true) THEN
        RETURN;
    END IF;
    why := {schema}_internal.other_database();
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'this is not the database in which the ledger was created: %', why
            USING HINT = 'If it was restored or cloned, the original may still be running. Nothing is planned or started here until `cronledger accept-database --skip-missed` (what was due until then does not run here) or `--catch-up` (the jobs'' catch_up decides).',
                  ERRCODE = 'CL005';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.require_own_database() IS 'Raises CL005 if this is not the ledger''s own database.';

-- A runner whose DSN leads to another ledger must not work there, however healthy that ledger is: the
-- database, the functions and even the jobs may be the same. Each transaction of a runner's step checks this.
CREATE OR REPLACE FUNCTION {schema}_internal.require_ledger(began_with uuid) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here {schema}.identity;
BEGIN
    SELECT i.* INTO here FROM {schema}.identity i;
    IF here.ledger_id <> began_with THEN
        RAISE EXCEPTION 'this is not the ledger that the runner began with: database % of the server with system identifier % holds ledger %, and the runner began with ledger %',
                        current_database(), (SELECT s.system_identifier FROM pg_control_system() s),
                        here.ledger_id, began_with
            USING DETAIL = concat('Ledger ', here.ledger_id, ', an accepted copy of ' || here.copy_of),
                  HINT = 'Correct the DSN so that it leads to the ledger with which the runner began, or restart the runner to use this ledger.',
                  ERRCODE = 'CL006';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.require_ledger(uuid) IS 'Raises CL006 unless this ledger has this id. The detail contains the id of this ledger, and of the original if it is an accepted copy. Does nothing if the argument is NULL, or if the ledger has no identity (require_own_database refuses such a ledger).';

-- A check-in counts for the timeline on which it was written. The first one after a failover updates the
-- identity. This is done in the trigger, because the runner's row still contains its previous check-in.
CREATE OR REPLACE FUNCTION {schema}_internal.runners_mark_timeline() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.timeline := {schema}_internal.current_timeline();
    IF EXISTS (SELECT FROM {schema}.identity i WHERE i.timeline <> NEW.timeline)
       AND {schema}_internal.other_database() IS NULL THEN
        UPDATE {schema}.identity SET timeline = NEW.timeline, recorded_at = {schema}.db_now()
        WHERE timeline <> NEW.timeline;
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.runners_mark_timeline() IS 'Runs before a check-in is written. Records its timeline, and a failover in identity.';

CREATE OR REPLACE TRIGGER mark_timeline BEFORE INSERT OR UPDATE OF heartbeat_at ON {schema}.runners
    FOR EACH ROW EXECUTE FUNCTION {schema}_internal.runners_mark_timeline();

-- skip_missed has no rule of its own: each job is retired and returns at once. So job_revisions records it, the
-- planner settles as `missed` what was due before, and waiting executions are CANCELLED.
-- RUNNING rows are leases of runners of the original, which renew them there; in the copy they become stale.
-- After a requested cancel the sweeper ends them as CANCELLED, and they are not stolen. Otherwise they are
-- treated as after any crash.
-- Lock order: jobs by name (each with its schedules, then its waiting executions), executions by key.
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
            USING HINT = 'true: what was due until now does not run here; false: catch_up decides.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    jobs := 0; cancelled := 0; asked_to_end := 0;
    PERFORM FROM {schema}.identity i FOR UPDATE;
    why := {schema}_internal.other_database();
    IF why IS NULL THEN
        PERFORM {schema}_internal.record_action('accept_database', 'ledger', NULL, requested_by, 'unchanged',
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
        timeline = EXCLUDED.timeline, recorded_at = EXCLUDED.recorded_at,
        recorded_by = EXCLUDED.recorded_by,
        ledger_id = CASE WHEN skip_missed THEN gen_random_uuid() ELSE i.ledger_id END,
        copy_of = CASE WHEN skip_missed THEN i.ledger_id ELSE i.copy_of END;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('accept_database', 'ledger', NULL, requested_by, 'done',
        arguments => jsonb_build_object('skip_missed', skip_missed, 'why', why, 'jobs', jobs,
                                        'cancelled', cancelled, 'asked_to_end', asked_to_end));
    PERFORM pg_notify('{schema}', 'accepted');
END $$;
COMMENT ON FUNCTION {schema}.accept_database(boolean, text) IS 'Makes this database the ledger''s own, for example after a restore. With skip_missed, plan_times that were due until now become a skip with reason `missed`, waiting executions are CANCELLED, and RUNNING ones are requested to end. Otherwise the policies of each job decide. why: what differed; NULL: nothing differed, and nothing was changed.';
