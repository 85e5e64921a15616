-- Alerts: states of (job, scope) and of the ledger, the edges of these states, and their deliveries.
--
-- raise_alerts() is one function, and so one transaction: it observes what has changed since the last call, flips
-- states, writes an alert for each edge, creates the deliveries of the alerts, and moves its cursor. A
-- crash repeats all of it or nothing. One process at a time runs it (the turn alerts); any other takes over.
-- The cursor is a snapshot (alert_progress.handled): a change is new if its transaction is not visible in it, and is
-- visible now. So a long transaction, which holds back the oldest visible number, delays no alert, and each change is
-- observed exactly once. Only the numbers from the end of that snapshot on, and those that were in progress in it,
-- are searched for.
-- Lock: its turn, rows of its own tables and of verification_runs, and nothing of queues, jobs, schedules and executions. It
-- inserts deliveries, and locks none that exists.

CREATE OR REPLACE FUNCTION {schema}_internal.has_unobserved(handled pg_snapshot) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    seen  constant pg_snapshot := pg_current_snapshot();
    first constant xid8 := pg_snapshot_xmax(handled);
    last  constant xid8 := pg_snapshot_xmax(seen);
BEGIN
    RETURN EXISTS (SELECT FROM {schema}.executions e
                   WHERE e.changed_xact >= first AND e.changed_xact < last
                     AND pg_visible_in_snapshot(e.changed_xact, seen))
        OR EXISTS (SELECT FROM {schema}.deadline_breaches b
                   WHERE b.recorded_xact >= first AND b.recorded_xact < last
                     AND pg_visible_in_snapshot(b.recorded_xact, seen))
        OR EXISTS (SELECT FROM {schema}.skips k
                   WHERE k.reason IN ('overlap', 'missed') AND k.changed_xact >= first AND k.changed_xact < last
                     AND pg_visible_in_snapshot(k.changed_xact, seen));
END $$;
COMMENT ON FUNCTION {schema}_internal.has_unobserved(pg_snapshot) IS 'Returns whether there are visible changes after this cursor.';

CREATE OR REPLACE FUNCTION {schema}_internal.raise_alerts(most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    progress {schema}.alert_progress;
    upto     pg_snapshot;
    more     boolean := false;
BEGIN
    IF {schema}_internal.take_turn('alerts') IS NOT TRUE THEN
        RETURN NULL;
    END IF;
    SELECT p.* INTO progress FROM {schema}.alert_progress p;
    IF NOT progress.watching THEN
        RETURN false;
    END IF;
    IF pg_snapshot_xmax(pg_current_snapshot()) < pg_snapshot_xmax(progress.handled) THEN
        -- Numbers go back when a dump is restored into another server.
        progress.handled := pg_current_snapshot();
        progress.since := {schema}.db_clock();
    END IF;
    progress.since := {schema}_internal.despite_leap(progress.since);
    upto := {schema}_internal.observe_executions(progress.handled, progress.since, most);
    PERFORM {schema}_internal.observe_breaches(progress.handled, upto, progress.since);
    PERFORM {schema}_internal.observe_skips(progress.handled, upto, progress.since);
    IF progress.next_at <= {schema}.db_now() OR progress.next_at > {schema}.db_now() + interval '1 minute' THEN
        -- A replica searches every 10 s. After a gap or a start of the server, nobody could check in before now. The same
        -- holds if the clock was set back.
        IF progress.next_at < {schema}.db_now() - interval '20 seconds'
           OR progress.server_start IS DISTINCT FROM pg_postmaster_start_time()
           OR progress.writable_since > {schema}.db_now() THEN
            progress.writable_since := {schema}.db_now();
            progress.server_start := pg_postmaster_start_time();
        END IF;
        PERFORM {schema}_internal.forget_states();
        -- Each of these searches takes as long as some thousand flips.
        progress.examined := {schema}_internal.close_met_deadlines(progress.examined, 20 * most);
        more := {schema}_internal.observe_overdue(20 * most) OR progress.examined IS NOT NULL;
        PERFORM {schema}_internal.observe_runners(progress.since, progress.writable_since);
        PERFORM {schema}_internal.observe_failing_runners();
        PERFORM {schema}_internal.observe_verifications(progress.since);
        more := {schema}_internal.settle_states(20 * most) OR more;
        more := {schema}_internal.remind_of_states(20 * most) OR more;
        progress.next_at := {schema}.db_clock() + CASE WHEN more THEN interval '0' ELSE interval '10 seconds' END;
    END IF;
    PERFORM {schema}_internal.deliver_alerts();
    UPDATE {schema}.alert_progress p
    SET handled = upto, since = progress.since, next_at = progress.next_at, examined = progress.examined,
        writable_since = progress.writable_since, server_start = progress.server_start;
    RETURN more OR {schema}_internal.has_unobserved(upto);
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_alerts(integer) IS 'Observes about this many changed executions, new breaches and new skips, and events of other kinds every 10 seconds; flips states, writes alerts, and creates their deliveries, all in this transaction. Returns whether more is left; NULL: another process does it.';
