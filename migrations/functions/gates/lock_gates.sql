-- Each step is a statement of its own, so that the last one sees what was committed before the locks.
-- Lock: schedules by key, executions by key, gates by key, all SKIP LOCKED, until the end of the transaction.
CREATE OR REPLACE FUNCTION {schema}_internal.lock_gates(most integer)
RETURNS TABLE (
    job_name text, scope_kind text, scope_id text, plan_time timestamptz, upstream_job text, upstream_kind text,
    upstream_id text, upstream_plan_time timestamptz, revision bigint, due_at timestamptz, gated_at timestamptz,
    waits_until timestamptz, now_ timestamptz)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    due  {schema}.gates[];
    held {schema}.gates[];
BEGIN
    due := ARRAY(SELECT g FROM {schema}.gates g WHERE g.check_at <= {schema}.db_now() ORDER BY g.check_at LIMIT most);
    IF cardinality(due) = 0 THEN
        RETURN;
    END IF;
    held := ARRAY(
        WITH s AS MATERIALIZED (
            SELECT d.job_name, d.scope_kind, d.scope_id
            FROM (SELECT DISTINCT u.job_name, u.scope_kind, u.scope_id FROM unnest(due) u ORDER BY 1, 2, 3) d
            CROSS JOIN LATERAL (
                SELECT FROM {schema}.schedules s
                WHERE (s.job_name, s.scope_kind, s.scope_id) = (d.job_name, d.scope_kind, d.scope_id)
                LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) l
        )
        SELECT u FROM unnest(due) u JOIN s USING (job_name, scope_kind, scope_id)
        ORDER BY u.job_name, u.scope_kind, u.scope_id, u.plan_time);
    -- Those whose execution is locked are left for the next step.
    due := ARRAY(
        WITH e AS MATERIALIZED (
            SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time
            FROM (SELECT * FROM unnest(held) LIMIT cardinality(held)) u
            JOIN {schema}.executions e
                ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job_name, u.scope_kind, u.scope_id, u.plan_time)
            WHERE e.plan_time BETWEEN (SELECT min(h.plan_time) FROM unnest(held) h)
                                  AND (SELECT max(h.plan_time) FROM unnest(held) h)
            ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time FOR UPDATE OF e SKIP LOCKED
        )
        SELECT u FROM unnest(held) u JOIN e USING (job_name, scope_kind, scope_id, plan_time));
    held := ARRAY(
        SELECT g
        FROM (SELECT * FROM unnest(due) u ORDER BY u.job_name, u.scope_kind, u.scope_id, u.plan_time) u
        CROSS JOIN LATERAL (
            SELECT g.* FROM {schema}.gates g
            WHERE (g.job_name, g.scope_kind, g.scope_id, g.plan_time) = (u.job_name, u.scope_kind, u.scope_id, u.plan_time)
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) g);
    RETURN QUERY
    SELECT g.job_name, g.scope_kind, g.scope_id, g.plan_time, g.upstream_job, g.upstream_kind, g.upstream_id,
           g.upstream_plan_time, e.revision, e.due_at, e.gated_at, e.waits_until, {schema}.db_clock()
    FROM (SELECT * FROM unnest(held) LIMIT cardinality(held)) h
    JOIN {schema}.gates g
        ON (g.job_name, g.scope_kind, g.scope_id, g.plan_time) = (h.job_name, h.scope_kind, h.scope_id, h.plan_time)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job_name, h.scope_kind, h.scope_id, h.plan_time)
    WHERE e.plan_time BETWEEN (SELECT min(o.plan_time) FROM unnest(held) o)
                          AND (SELECT max(o.plan_time) FROM unnest(held) o)
      AND g.check_at <= {schema}.db_now();
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_gates(integer) IS 'Locks up to this many gates that are due to be checked, with their schedules and executions, and returns them. Those of which another transaction has locked something are left out. now_: the clock after the locks.';
