-- An open breach is looked at again after a tenth of its age, at most after an hour, because any later attempt, retry
-- or backfill may meet the deadline late.
CREATE OR REPLACE FUNCTION {schema}_internal.close_breaches(most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    counted integer;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT b.* FROM {schema}.deadline_breaches b
        WHERE b.closed_at IS NULL AND b.look_at <= {schema}.db_now() ORDER BY b.look_at LIMIT most
    ), seen AS MATERIALIZED (
        SELECT d.job_name, d.scope_kind, d.scope_id, d.plan_time, d.kind, d.month, d.deadline, e.id, CASE
            WHEN d.kind = 'start_by' THEN e.first_start
            WHEN e.status = 'SUCCESS' THEN CASE d.kind
                WHEN 'finish_by' THEN e.finished_at ELSE e.started_at + e.duration END END AS met_at
        FROM due d
        LEFT JOIN LATERAL {schema}_internal.deadline_facts(d.job_name, d.scope_kind, d.scope_id, d.plan_time) e ON true
    ), written AS (
        UPDATE {schema}.deadline_breaches b
        SET closed_at = s.met_at, execution_id = coalesce(b.execution_id, s.id),
            look_at = CASE WHEN s.met_at IS NULL THEN {schema}.db_now() + least(interval '1 hour',
                greatest(interval '5 seconds', ({schema}.db_now() - b.breached_at) / 10)) END
        FROM seen s
        WHERE (b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.kind)
            = (s.job_name, s.scope_kind, s.scope_id, s.plan_time, s.kind)
    ), moved AS (
        SELECT s.job_name, s.scope_kind, s.scope_id, s.month, s.kind,
               count(*) FILTER (WHERE s.met_at > s.deadline) AS late,
               count(*) FILTER (WHERE s.met_at <= s.deadline) AS in_time
        FROM seen s WHERE s.met_at IS NOT NULL GROUP BY 1, 2, 3, 4, 5
    ), counts AS (
        UPDATE {schema}.deadline_months m
        SET met = m.met + c.in_time, met_late = m.met_late + c.late, missed = m.missed - c.late - c.in_time
        FROM moved c
        WHERE (m.job_name, m.scope_kind, m.scope_id, m.month, m.kind)
            = (c.job_name, c.scope_kind, c.scope_id, c.month, c.kind)
    )
    SELECT count(*) INTO counted FROM seen;
    RETURN counted;
END $$;
COMMENT ON FUNCTION {schema}_internal.close_breaches(integer) IS 'Checks at most this many open breaches that are due to be checked, and closes those whose deadline was met late. Returns how many it checked. The caller has the turn of the step.';
