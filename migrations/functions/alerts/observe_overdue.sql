CREATE OR REPLACE FUNCTION {schema}_internal.observe_overdue(most integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    found record;
    total integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}_internal.alert_rules() r WHERE r.event = 'overdue') THEN
        RETURN false;
    END IF;
    FOR found IN
        WITH rules AS MATERIALIZED (
            SELECT r.* FROM {schema}_internal.alert_rules() r WHERE r.event = 'overdue' AND NOT r.paused
        ), late AS MATERIALIZED (
            SELECT DISTINCT ON (o.job_name, o.scope_kind, o.scope_id) o.*
            FROM {schema}.overdue o
            WHERE o.scope_id IS NOT NULL AND o.job_name IN (SELECT r.job_name FROM rules r)
              AND NOT {schema}_internal.is_scope_retired(o.job_name, o.scope_kind, o.scope_id)
            ORDER BY o.job_name, o.scope_kind, o.scope_id, o.due_at
        ), open AS MATERIALIZED (
            SELECT t.* FROM {schema}.tracked_states t WHERE t.event = 'overdue' AND t.count > 0
        )
        SELECT r.*, coalesce(o.scope_kind, t.scope_kind) AS kind, coalesce(o.scope_id, t.scope_id) AS scope,
               o.job_name IS NOT NULL AS holds, o.id, o.plan_time, o.due_at, o.reason, o.detail
        FROM (late o JOIN rules n ON n.job_name = o.job_name AND o.overdue_for > n.grace)
        FULL JOIN open t ON (t.job_name, t.scope_kind, t.scope_id, t.channel)
                          = (o.job_name, o.scope_kind, o.scope_id, n.channel)
        JOIN rules r ON (r.job_name, r.channel) = (coalesce(n.job_name, t.job_name), coalesce(n.channel, t.channel))
        WHERE o.job_name IS NULL OR t.job_name IS NULL
        ORDER BY r.job_name, r.channel, kind, scope LIMIT most
    LOOP
        total := total + 1;
        PERFORM {schema}_internal.observe_event(
            ROW(found.channel, 'overdue', found.job_name, found.kind, found.scope, '', found.holds::integer, NULL, NULL,
                NULL, found.id, found.plan_time,
                CASE WHEN found.holds THEN format('%s has not %s: %s', found.job_name,
                         CASE found.reason WHEN 'lease_expired' THEN 'ended' ELSE 'started' END, found.detail)
                     ELSE format('%s is no longer overdue', found.job_name) END,
                jsonb_strip_nulls(jsonb_build_object('reason', found.reason, 'due_at', found.due_at))
            )::{schema}.tracked_states, found.after, found.opens, found.closes, false);
    END LOOP;
    RETURN total = most;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_overdue(integer) IS 'Observes which (job, scope) of jobs with the event overdue have been overdue for longer than grace, and which no longer are: at most this many, so that a transaction ends in time. Returns whether more may be left. Jobs that are paused keep their states.';
