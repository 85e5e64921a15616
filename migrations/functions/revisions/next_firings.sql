-- For the page: upcoming sorts all schedules, because the due index does not contain woken ones.
-- A schedule is due before its next plan_time if it was edited, or to record plan_times that are skipped.
CREATE OR REPLACE FUNCTION {schema}_internal.next_firings(of_queue text, before timestamptz, most integer)
RETURNS TABLE (job_name text, scope_kind text, scope_id text, plan_time timestamptz, due_at timestamptz)
LANGUAGE sql STABLE ROWS 50 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
    (SELECT s.job_name, s.scope_kind, s.scope_id, s.next_plan_time,
            greatest(s.next_due_at, s.next_plan_time) FROM {schema}.schedules s
     WHERE {schema}_internal.scope_host(s.scope_kind, s.scope_id) = '' AND NOT s.woken AND s.queue = of_queue
       AND s.next_due_at >= {schema}.db_now() AND s.next_due_at < before
       AND s.next_plan_time < before AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
     ORDER BY s.next_due_at LIMIT most)
    UNION ALL
    (SELECT s.job_name, s.scope_kind, s.scope_id, s.next_plan_time,
            greatest(s.next_due_at, s.next_plan_time) FROM {schema}.schedules s
     WHERE {schema}_internal.scope_host(s.scope_kind, s.scope_id) > '' AND NOT s.woken AND s.queue = of_queue
       AND s.next_due_at >= {schema}.db_now() AND s.next_due_at < before
       AND s.next_plan_time < before AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
     ORDER BY s.next_due_at LIMIT most)
    UNION ALL
    (SELECT s.job_name, s.scope_kind, s.scope_id, s.next_plan_time,
            greatest(s.next_due_at, s.next_plan_time) FROM {schema}.schedules s
     WHERE s.woken AND s.queue = of_queue AND s.next_due_at >= {schema}.db_now() AND s.next_due_at < before
       AND s.next_plan_time < before AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
     ORDER BY s.next_due_at LIMIT most)
$$;
COMMENT ON FUNCTION {schema}_internal.next_firings(text, timestamptz, integer) IS 'Returns the earliest plan_times of a queue that are due before this instant: at most this many of woken schedules, of those of hosts, and of the others.';
