CREATE OR REPLACE FUNCTION {schema}_internal.observe_runners(from_at timestamptz, writable_since timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    FOR found IN
        WITH channels AS (
            SELECT c.channel FROM unnest({schema}_internal.ledger_channels('runner_lost')) c(channel)
        ), lost AS (
            SELECT r.id, r.host, r.stale_after,
                   -- Since the ledger can be written, it has had as long to check in as after any other check-in.
                   writable_since + (r.stale_after - r.heartbeat_at) < {schema}.db_now() AS had_time
            FROM {schema}.runners r
            -- Not a worker in another language, which does not report its end.
            WHERE r.state <> 'stopped' AND r.version <> 'external'
              AND r.stale_after < {schema}.db_now() AND r.stale_after >= from_at
        )
        SELECT c.channel, l.id AS runner, true AS holds, format('runner %s on %s has not checked in', l.id, l.host) AS summary,
               jsonb_build_object('host', l.host, 'stale_after', l.stale_after) AS details
        FROM channels c CROSS JOIN lost l
        WHERE l.had_time AND NOT EXISTS (SELECT FROM {schema}.tracked_states t WHERE t.event = 'runner_lost'
                          AND (t.channel, t.runner_id) = (c.channel, l.id))
        UNION ALL
        SELECT t.channel, t.runner_id, false,
               CASE WHEN EXISTS (SELECT FROM {schema}.runners r WHERE r.id = t.runner_id AND r.state <> 'stopped')
                    THEN format('runner %s has checked in again', t.runner_id)
                    ELSE format('runner %s has stopped or was removed', t.runner_id) END, '{}'
        FROM {schema}.tracked_states t JOIN channels c USING (channel)
        WHERE t.event = 'runner_lost' AND t.runner_id NOT IN (SELECT l.id FROM lost l)
        ORDER BY 1, 2
    LOOP
        PERFORM {schema}_internal.observe_event(
            ROW(found.channel, 'runner_lost', '', '', '', found.runner, found.holds::integer, NULL, NULL, NULL, NULL,
                NULL, found.summary, found.details)::{schema}.tracked_states, 1, true, true, false);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_runners(timestamptz, timestamptz) IS 'Observes which runners were due to check in at or after the first instant and neither did so nor stopped, and which of them have returned, stopped, or were removed. Only the time from the second instant on counts, because the ledger could not be written before.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_failing_runners() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    -- `failed` contains the errors of the last minute too: while nothing can be written, no alert can be raised.
    FOR found IN
        WITH channels AS (
            SELECT c.channel FROM unnest({schema}_internal.ledger_channels('runner_failing')) c(channel)
        ), failing AS (
            SELECT r.id, r.host, {schema}_internal.loop_errors(r.diagnostics -> 'failed') AS errors
            FROM {schema}.runners r
            WHERE r.state <> 'stopped' AND r.stale_after > {schema}.db_now()
              AND {schema}_internal.loop_errors(r.diagnostics -> 'failed') IS NOT NULL
        )
        SELECT c.channel, f.id AS runner, true AS holds, format('runner %s on %s is failing: %s', f.id, f.host, f.errors) AS summary,
               jsonb_build_object('host', f.host, 'errors', f.errors) AS details
        FROM channels c CROSS JOIN failing f
        WHERE NOT EXISTS (SELECT FROM {schema}.tracked_states t WHERE t.event = 'runner_failing'
                          AND (t.channel, t.runner_id) = (c.channel, f.id))
        UNION ALL
        SELECT t.channel, t.runner_id, false, format('runner %s is no longer failing, or has ended', t.runner_id), '{}'
        FROM {schema}.tracked_states t JOIN channels c USING (channel)
        WHERE t.event = 'runner_failing' AND t.runner_id NOT IN (SELECT f.id FROM failing f)
        ORDER BY 1, 2
    LOOP
        PERFORM {schema}_internal.observe_event(
            ROW(found.channel, 'runner_failing', '', '', '', found.runner, found.holds::integer, NULL, NULL, NULL, NULL,
                NULL, found.summary, found.details)::{schema}.tracked_states, 1, true, true, false);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_failing_runners() IS 'Observes which live runners have reported repeated errors that are not those of an unreachable database, within the minute before their last check-in, and which no longer do.';
