CREATE OR REPLACE FUNCTION {schema}_internal.observe_skips(handled pg_snapshot, upto pg_snapshot, from_at timestamptz)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    left_ constant xid8[] := ARRAY(SELECT pg_snapshot_xip(handled));
    first constant xid8 := pg_snapshot_xmax(handled);
    last  constant xid8 := pg_snapshot_xmax(upto);
    found record;
BEGIN
    FOR found IN
        WITH changed AS MATERIALIZED (
            SELECT x.* FROM {schema}.skips x
            WHERE x.reason IN ('overlap', 'missed', 'upstream', 'host_absent', 'not_reported') AND x.changed_xact = ANY (left_)
            UNION ALL
            SELECT x.* FROM {schema}.skips x
            WHERE x.reason IN ('overlap', 'missed', 'upstream', 'host_absent', 'not_reported') AND x.changed_xact >= first AND x.changed_xact < last
        ), newest AS MATERIALIZED (
            -- A range that grows has a new end.
            SELECT DISTINCT ON (c.job_name, c.scope_kind, c.scope_id) c.* FROM changed c
            WHERE pg_visible_in_snapshot(c.changed_xact, upto)
            ORDER BY c.job_name, c.scope_kind, c.scope_id, c.from_plan_time DESC
        ), rules AS MATERIALIZED (
            -- An edit of something else does not begin the rule again.
            SELECT r.*, (
                SELECT min(v.effective_from) FROM {schema}.job_revisions v
                WHERE v.job_name = r.job_name AND v.revision > coalesce((
                    SELECT max(o.revision) FROM {schema}.job_revisions o
                    WHERE o.job_name = r.job_name AND (o.state = 'retired' OR NOT coalesce(
                        o.definition -> 'notify' @> jsonb_build_array(
                            jsonb_build_object('channel', r.channel, 'on', '["skipped"]'::jsonb))
                        OR jsonb_path_exists(o.definition -> 'notify',
                            '$[*] ? (@.channel == $name && (!exists(@.on) || @.on == null))',
                            jsonb_build_object('name', r.channel)), false))), 0)) AS declared_at
            FROM {schema}_internal.alert_rules() r
            WHERE r.event = 'skipped' AND r.job_name IN (SELECT n.job_name FROM newest n)
        )
        SELECT r.*, k.scope_kind, k.scope_id, {schema}_internal.is_scope_retired(k.job_name, k.scope_kind, k.scope_id) AS retired,
               k.from_plan_time, k.through_plan_time, k.reason, k.detail, k.blocked_by, k.count AS in_range,
               greatest(1, k.count - CASE WHEN t.count > 0 AND t.details -> 'from_plan_time' = to_jsonb(k.from_plan_time)
                                          THEN coalesce((t.details ->> 'in_range')::bigint, 0) ELSE 0 END) AS new
        FROM rules r
        JOIN newest k ON k.job_name = r.job_name
        LEFT JOIN {schema}.tracked_states t
            ON (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
             = (k.job_name, k.scope_kind, k.scope_id, '', 'skipped', r.channel)
        WHERE k.through_plan_time > coalesce(t.seen_plan_time, greatest(
                  from_at, {schema}_internal.despite_leap(r.declared_at)))
        ORDER BY r.job_name, r.channel, k.scope_kind, k.scope_id
    LOOP
        PERFORM {schema}_internal.observe_event(
            ROW(found.channel, 'skipped', found.job_name, found.scope_kind, found.scope_id, '', found.new, NULL, NULL,
                found.through_plan_time, found.blocked_by, found.through_plan_time,
                format('%s skipped a firing: %s', found.job_name,
                       CASE found.reason WHEN 'overlap' THEN 'the previous execution was still RUNNING'
                                         WHEN 'upstream' THEN found.detail
                                         WHEN 'host_absent' THEN format('no replica of the host %s had checked in by the end of grace', found.scope_id)
                                         WHEN 'not_reported' THEN 'no start was reported within grace'
                                         ELSE 'it was not started within grace, or its definition was invalid' END),
                jsonb_build_object('reason', found.reason, 'from_plan_time', found.from_plan_time,
                                   'through_plan_time', found.through_plan_time,
                                   'in_range', found.in_range))::{schema}.tracked_states,
            CASE WHEN found.reason IN ('missed', 'upstream', 'host_absent', 'not_reported') THEN 1 ELSE found.after END, found.opens, found.closes, found.paused OR found.retired);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_skips(pg_snapshot, pg_snapshot, timestamptz) IS 'Observes the last new skip of each scope, with the reason overlap, missed, upstream, host_absent or not_reported, of jobs with the event skipped. New are those that were written or have grown by transactions that are visible in the second snapshot and not in the first one. For a scope that is not tracked yet, skips before this instant or before its job had the rule do not count. Skips of a retired scope raise no alert.';
