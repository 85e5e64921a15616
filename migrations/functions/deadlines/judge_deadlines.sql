-- Deadlines. A step of the sweeper (engine/maintenance/deadlines.py) computes the deadlines of plan_times, because
-- wall times follow the zone data of the replicas. It writes them to deadlines, and judges those that are past.
-- One transaction contains the cursors, the new deadlines, the judged ones, the breaches and the counts. One process
-- at a time has the turn, so that each deadline is judged exactly once, and a crash repeats the step.
-- A job with more scopes than one transaction handles is computed in a pass of several transactions, in the order of
-- its scopes. The cursor contains the last scope, and moves after the pass.
-- Lock: the turn deadlines; jobs FOR SHARE with SKIP LOCKED, so that no edit is dated before a cursor; then these
-- tables. Executions and skips are only read.

-- The execution of a key, as deadlines see it. first_start does not change with retries.
CREATE OR REPLACE FUNCTION {schema}_internal.deadline_facts(
    job text, kind text, scope text, plan timestamptz,
    OUT id bigint, OUT status text, OUT first_start timestamptz, OUT started_at timestamptz,
    OUT finished_at timestamptz, OUT duration interval, OUT final boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $$
    SELECT e.id, e.status,
           CASE WHEN e.attempts = '[]' THEN e.started_at ELSE (e.attempts #>> '{0,started_at}')::timestamptz END,
           e.started_at, e.finished_at, e.duration_ms * interval '1 millisecond',
           e.status <> 'PENDING' AND e.next_attempt_at IS NULL
    FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (job, kind, scope, plan) LIMIT 1
$$;
COMMENT ON FUNCTION {schema}_internal.deadline_facts(text, text, text, timestamptz) IS 'Returns the columns of an execution from which its deadlines are judged. Zero rows: the execution does not exist.';

CREATE OR REPLACE FUNCTION {schema}_internal.judge_deadlines(most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    counted integer;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.* FROM {schema}.deadlines d WHERE d.look_at <= {schema}.db_now() ORDER BY d.look_at LIMIT most
    ), seen AS MATERIALIZED (
        SELECT d.*, e.id, e.status, e.first_start, e.started_at, e.finished_at, e.duration, e.final, k.reason,
               -- Also before the claim that records the skip.
               e.id IS NULL AND EXISTS (
                   SELECT FROM {schema}.planned_skips p
                   WHERE p.job_name = d.job_name AND p.covered_through >= p.from_plan_time
                     AND p.covered_through >= d.plan_time AND p.from_plan_time <= d.plan_time
                     AND (p.scope_id IS NULL OR (p.scope_kind, p.scope_id) = (d.scope_kind, d.scope_id))
               ) AS is_planned_skip
        FROM due d
        LEFT JOIN LATERAL {schema}_internal.deadline_facts(d.job_name, d.scope_kind, d.scope_id, d.plan_time) e ON true
        -- Ranges of one scope overlap only where jitter makes their plan_times alternate.
        LEFT JOIN LATERAL (
            SELECT o.reason FROM (
                SELECT k.reason, k.through_plan_time FROM {schema}.skips k
                WHERE (k.job_name, k.scope_kind, k.scope_id) = (d.job_name, d.scope_kind, d.scope_id)
                  AND k.from_plan_time <= d.plan_time
                ORDER BY k.from_plan_time DESC LIMIT 10) o
            WHERE o.through_plan_time >= d.plan_time LIMIT 1) k ON e.id IS NULL
    ), judged AS MATERIALIZED (
        SELECT s.*, CASE
            WHEN s.id IS NULL AND (s.reason IN ('paused', 'retired', 'operator', 'calendar') OR s.is_planned_skip) THEN 'void'
            WHEN s.kind = 'start_by' THEN CASE
                WHEN s.first_start <= s.deadline THEN 'met'
                WHEN s.first_start IS NULL AND s.status = 'CANCELLED' AND s.finished_at <= s.deadline THEN 'void'
                ELSE 'missed' END
            WHEN s.kind = 'finish_by' THEN CASE
                WHEN s.status = 'SUCCESS' AND s.finished_at <= s.deadline THEN 'met'
                WHEN s.status = 'CANCELLED' AND s.finished_at <= s.deadline THEN 'void'
                ELSE 'missed' END
            WHEN s.id IS NULL THEN CASE WHEN s.reason IS NULL THEN 'open' ELSE 'void' END
            WHEN s.status = 'RUNNING' THEN CASE
                WHEN s.started_at + s.expected < {schema}.db_now() THEN 'missed' ELSE 'open' END
            WHEN s.status <> 'PENDING' AND s.duration > s.expected THEN 'missed'
            WHEN s.status = 'CANCELLED' THEN 'void'
            WHEN s.final THEN 'met'
            ELSE 'open' END AS verdict
        FROM seen s
    ), gone AS (
        DELETE FROM {schema}.deadlines d USING judged j
        WHERE (d.job_name, d.scope_kind, d.scope_id, d.plan_time, d.kind)
            = (j.job_name, j.scope_kind, j.scope_id, j.plan_time, j.kind) AND j.verdict <> 'open'
    ), kept AS (
        -- What starts from now on cannot run for too long before that.
        UPDATE {schema}.deadlines d
        SET look_at = greatest(CASE j.status WHEN 'RUNNING' THEN j.started_at ELSE {schema}.db_now() END + j.expected,
                               {schema}.db_now()) + interval '1 second'
        FROM judged j
        WHERE (d.job_name, d.scope_kind, d.scope_id, d.plan_time, d.kind)
            = (j.job_name, j.scope_kind, j.scope_id, j.plan_time, j.kind) AND j.verdict = 'open'
    ), missed AS (
        INSERT INTO {schema}.deadline_breaches
            (job_name, scope_kind, scope_id, plan_time, kind, execution_id, revision, deadline, month, breached_at,
             look_at)
        SELECT j.job_name, j.scope_kind, j.scope_id, j.plan_time, j.kind, j.id, j.revision,
               coalesce(j.deadline, j.started_at + j.expected), j.month, {schema}.db_now(), {schema}.db_now()
        FROM judged j WHERE j.verdict = 'missed'
        ORDER BY j.job_name, j.scope_kind, j.scope_id, j.plan_time, j.kind
    ), counts AS (
        INSERT INTO {schema}.deadline_months AS m
            (job_name, scope_kind, scope_id, month, kind, met, met_late, missed)
        SELECT j.job_name, j.scope_kind, j.scope_id, j.month, j.kind, count(*) FILTER (WHERE j.verdict = 'met'), 0,
               count(*) FILTER (WHERE j.verdict = 'missed')
        FROM judged j WHERE j.verdict IN ('met', 'missed') GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (job_name, scope_kind, scope_id, month, kind)
        DO UPDATE SET met = m.met + EXCLUDED.met, missed = m.missed + EXCLUDED.missed
    )
    SELECT count(*) INTO counted FROM judged;
    RETURN counted;
END $$;
COMMENT ON FUNCTION {schema}_internal.judge_deadlines(integer) IS 'Judges at most this many deadlines that have passed, records the missed ones, and counts all of them. Returns how many it examined. The caller has the turn of the step.';
