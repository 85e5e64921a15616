-- Without a schedule that is unblocked, every parked job is probed. Beyond `most` of them the sweeper searches
-- instead, with a statement of its own: a check-in must not become slow by what is parked. What is dirty is
-- not examined here, because only settle_inputs decides that.
CREATE OR REPLACE FUNCTION {schema}_internal.left_behind(most integer)
RETURNS text[] LANGUAGE plpgsql STABLE STRICT
SET jit = off SET plan_cache_mode = force_generic_plan SET seq_page_cost = 1000 AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(w.what), '{}') FROM (
            SELECT 'schedules' AS what
            WHERE EXISTS (SELECT FROM {schema}.schedules s WHERE s.parked = 'waiting' OFFSET most)
               OR EXISTS (SELECT FROM {schema}_internal.parked_jobs('limit') OFFSET most)
               OR EXISTS (SELECT FROM {schema}_internal.parked_jobs('no_runner') OFFSET most)
               OR EXISTS (SELECT FROM {schema}_internal.parked_jobs('spec_error') OFFSET most)
               OR EXISTS (SELECT FROM {schema}_internal.unblocked_schedules(most, 1))
            UNION ALL
            SELECT 'inputs'
            WHERE EXISTS (
                      SELECT FROM {schema}.schedules s
                      WHERE coalesce(s.input_watermark > s.success_watermark, s.input_watermark IS NOT NULL))
               OR EXISTS (
                      SELECT FROM {schema}.executions f
                      WHERE f.next_attempt_at IS NOT NULL AND f.enqueue_key IS NOT NULL AND f.status = 'FAILED')
            UNION ALL
            SELECT 'orphans'
            WHERE EXISTS (
                      SELECT FROM (SELECT w.job_name FROM {schema}_internal.waiting_jobs() w LIMIT most) d
                      LEFT JOIN {schema}.jobs j ON j.name = d.job_name
                      WHERE j.name IS NULL OR j.retired_at IS NOT NULL)
               OR EXISTS (SELECT FROM {schema}_internal.waiting_jobs() OFFSET most)
            UNION ALL
            SELECT 'gates' WHERE EXISTS (SELECT FROM {schema}_internal.unblocked_gates(most))
            UNION ALL
            SELECT 'hosts'
            WHERE {schema}_internal.hosts_changed() OR EXISTS (SELECT FROM {schema}_internal.absent_schedules(most))
            UNION ALL
            SELECT 'runners'
            WHERE EXISTS (SELECT FROM {schema}.runners r
                          WHERE r.stale_after < {schema}.db_now() - interval '1 day'
                            AND (r.diagnostics <> '{}' OR r.handlers <> '{}'))
            UNION ALL
            SELECT 'statistics'
            WHERE EXISTS (SELECT FROM {schema}_internal.analyzed_while_empty())) w);
END $$;
COMMENT ON FUNCTION {schema}_internal.left_behind(integer) IS 'Returns what the sweeper has to repair: schedules (rearm_left_behind), inputs (settle_left_behind), orphans (end_orphans), gates (wake_left_gates), hosts (follow_hosts), runners (reap_runners), statistics (maintain_partitions). More than `most` schedules or jobs of one kind count as something to repair, because no more are examined. most NULL: examines nothing and returns NULL. Locks nothing.';
