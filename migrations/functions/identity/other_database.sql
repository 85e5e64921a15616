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
    ELSIF home.database_oid = 0 THEN
        RETURN format('%s refused it at %s', home.recorded_by, {schema}_internal.utc_text(home.recorded_at));
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
