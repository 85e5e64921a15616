CREATE OR REPLACE FUNCTION {schema}_internal.is_scope_retired(job text, kind text, scope text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM {schema}.schedules s
                   WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope)
                     AND s.retired_at IS NOT NULL AND s.returned_at IS NULL)
$$;
COMMENT ON FUNCTION {schema}_internal.is_scope_retired(text, text, text) IS 'Returns whether this scope is retired, and has not returned.';

CREATE OR REPLACE FUNCTION {schema}_internal.forget_states() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- What has no rule any more, because its job was edited, retired or deleted.
    DELETE FROM {schema}.tracked_states t
    WHERE t.job_name <> '' AND NOT EXISTS (
        SELECT FROM {schema}_internal.alert_rules() r
        WHERE (r.job_name, r.event, r.channel) = (t.job_name, t.event, t.channel));
    DELETE FROM {schema}.tracked_states t
    WHERE t.job_name = '' AND NOT EXISTS (
        SELECT FROM unnest({schema}_internal.ledger_channels(t.event)) c(channel) WHERE c.channel = t.channel);
    DELETE FROM {schema}.tracked_states t
    WHERE t.job_name <> '' AND t.event <> 'skipped'
      AND {schema}_internal.is_scope_retired(t.job_name, t.scope_kind, t.scope_id);
    -- It remembers the skips that it has seen, for the return of the scope.
    UPDATE {schema}.tracked_states t SET count = 0, since = NULL, last_alert_at = NULL
    WHERE t.job_name <> '' AND t.event = 'skipped' AND (t.count > 0 OR t.since IS NOT NULL)
      AND {schema}_internal.is_scope_retired(t.job_name, t.scope_kind, t.scope_id);
END $$;
COMMENT ON FUNCTION {schema}_internal.forget_states() IS 'Closes the states that no longer have a rule, and those of retired scopes, without an alert.';

CREATE OR REPLACE FUNCTION {schema}_internal.settle_states(most integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    total bigint;
BEGIN
    SELECT count({schema}_internal.flip_state(u.state, u.after, u.opens, u.closes, u.paused)) INTO total
    FROM (SELECT t AS state, r.after, r.opens, r.closes, r.paused
          FROM {schema}.tracked_states t
          JOIN {schema}_internal.alert_rules() r
              ON (r.job_name, r.event, r.channel) = (t.job_name, t.event, t.channel)
          WHERE NOT r.paused AND (t.since IS NULL AND t.count >= r.after OR t.since IS NOT NULL AND t.count = 0)
          LIMIT most) u;
    RETURN total = most;
END $$;
COMMENT ON FUNCTION {schema}_internal.settle_states(integer) IS 'Flips at most this many states whose events were counted while their jobs were paused. Returns whether more may be left.';
