CREATE OR REPLACE FUNCTION {schema}_internal.remind_of_states(most integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    state {schema}.tracked_states;
    total integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.tracked_states t WHERE t.since IS NOT NULL) THEN
        RETURN false;
    END IF;
    FOR state IN
        UPDATE {schema}.tracked_states t SET last_alert_at = {schema}.db_now()
        FROM (SELECT o.job_name, o.scope_kind, o.scope_id, o.runner_id, o.event, o.channel
              FROM {schema}.tracked_states o
              JOIN {schema}_internal.alert_rules() r
                  ON (r.job_name, r.event, r.channel) = (o.job_name, o.event, o.channel)
              WHERE o.since IS NOT NULL AND o.count > 0 AND r.opens AND NOT r.paused
                AND (o.last_alert_at + r.remind <= {schema}.db_now() OR o.last_alert_at > {schema}.db_clock())
              ORDER BY o.last_alert_at LIMIT most) d
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (d.job_name, d.scope_kind, d.scope_id, d.runner_id, d.event, d.channel)
        RETURNING t.*
    LOOP
        total := total + 1;
        PERFORM {schema}_internal.write_alert(state, 'reminder');
    END LOOP;
    RETURN total = most;
END $$;
COMMENT ON FUNCTION {schema}_internal.remind_of_states(integer) IS 'Writes at most this many reminders: one for each open state whose last alert is older than remind of its rule, the oldest first. Returns whether more may be left.';
