-- SECURITY DEFINER, because runners may not delete executions.
-- An execution that expires has never started. So its row is deleted, and a skip accounts for its plan_time instead, in
-- one transaction. A backfill is a request of a person, and its plan_time is accounted for already: it is FAILED.
CREATE OR REPLACE FUNCTION {schema}_internal.settle_gates(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], verdicts text[],
    of_afters timestamptz[], of_untils timestamptz[], of_upstream_jobs text[], of_upstream_kinds text[],
    of_upstream_ids text[], of_upstream_plans timestamptz[], of_missing text[], of_checks timestamptz[],
    OUT opened bigint, OUT expired bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first_plan constant timestamptz := (SELECT min(u.plan) FROM unnest(of_plans) u(plan));
    last_plan  constant timestamptz := (SELECT max(u.plan) FROM unnest(of_plans) u(plan));
BEGIN
    -- The status is not a constant. Otherwise, in a new week's partition, PostgreSQL reads the index of all waiting
    -- executions for each gate.
    UPDATE {schema}.executions e
    SET gate_after = u.gate_after, waits_until = u.waits_until,
        status = CASE WHEN u.verdict = 'expire' AND e.trigger <> 'schedule' THEN 'FAILED' ELSE e.status END,
        next_attempt_at = CASE u.verdict WHEN 'open' THEN greatest(e.due_at, {schema}.db_clock()) END,
        finished_at = CASE WHEN u.verdict = 'expire' THEN {schema}.db_clock() END,
        error_code = CASE WHEN u.verdict = 'expire' THEN 'upstream' END,
        error_msg = CASE WHEN u.verdict = 'expire' THEN left(u.missing, 4000) END,
        changed_xact = CASE WHEN u.verdict = 'expire' THEN pg_current_xact_id() ELSE e.changed_xact END,
        updated_at = {schema}.db_clock()
    FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, verdicts, of_afters, of_untils, of_missing)
          LIMIT cardinality(of_jobs)) AS u(job, kind, scope, plan, verdict, gate_after, waits_until, missing)
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
      AND e.plan_time BETWEEN first_plan AND last_plan AND e.status = (SELECT 'PENDING') AND e.next_attempt_at IS NULL
      AND (u.verdict <> 'expire' OR e.trigger <> 'schedule')
      AND (u.verdict <> 'wait' OR (e.gate_after, e.waits_until) IS DISTINCT FROM (u.gate_after, u.waits_until));
    WITH gone AS (
        DELETE FROM {schema}.executions e
        USING (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, verdicts, of_missing)
               LIMIT cardinality(of_jobs)) AS u(job, kind, scope, plan, verdict, missing)
        WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
          AND e.plan_time BETWEEN first_plan AND last_plan AND e.status = (SELECT 'PENDING') AND e.next_attempt_at IS NULL
          AND u.verdict = 'expire' AND e.trigger = 'schedule'
        RETURNING e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.revision, u.missing
    )
    INSERT INTO {schema}.skips
        (job_name, scope_kind, scope_id, from_plan_time, through_plan_time, count, reason, detail, revision, created_at)
    SELECT g.job_name, g.scope_kind, g.scope_id, g.plan_time, g.plan_time, 1, 'upstream', g.missing, g.revision,
           {schema}.db_clock()
    FROM gone g ORDER BY 1, 2, 3, 4;
    UPDATE {schema}.gates g
    SET upstream_job = u.upstream_job, upstream_kind = u.upstream_kind, upstream_id = u.upstream_id,
        upstream_plan_time = u.upstream_plan, missing = u.missing, check_at = u.check_at
    FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, verdicts, of_upstream_jobs, of_upstream_kinds,
                               of_upstream_ids, of_upstream_plans, of_missing, of_checks) LIMIT cardinality(of_jobs))
        AS u(job, kind, scope, plan, verdict, upstream_job, upstream_kind, upstream_id, upstream_plan, missing, check_at)
    WHERE (g.job_name, g.scope_kind, g.scope_id, g.plan_time) = (u.job, u.kind, u.scope, u.plan) AND u.verdict = 'wait';
    DELETE FROM {schema}.gates g
    USING (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, verdicts) LIMIT cardinality(of_jobs))
        AS u(job, kind, scope, plan, verdict)
    WHERE (g.job_name, g.scope_kind, g.scope_id, g.plan_time) = (u.job, u.kind, u.scope, u.plan) AND u.verdict <> 'wait';
    -- Of a job with overlap = replace. One that is locked is not requested to end, and the execution waits for it.
    WITH u AS MATERIALIZED (
        SELECT DISTINCT u.job, u.kind, u.scope
        FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, verdicts) LIMIT cardinality(of_jobs))
            AS u(job, kind, scope, verdict)
        WHERE u.verdict = 'open'
          AND EXISTS (SELECT FROM {schema}.jobs j WHERE j.name = u.job AND j.overlap = 'replace')
    ), running AS MATERIALIZED (
        SELECT e.* FROM u CROSS JOIN LATERAL (
            SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope)
              AND e.status = 'RUNNING' AND e.runner_id <> 'observed' OFFSET 0) e
    ), held AS MATERIALIZED (
        SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time
        FROM running r JOIN {schema}.executions e USING (job_name, scope_kind, scope_id, plan_time)
        WHERE e.status = (SELECT 'RUNNING') AND e.cancel_requested_at IS NULL
        ORDER BY 1, 2, 3, 4 FOR NO KEY UPDATE OF e SKIP LOCKED
    )
    UPDATE {schema}.executions e
    SET cancel_requested_at = {schema}.db_clock(), cancel_requested_by = 'overlap=replace'
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job_name, h.scope_kind, h.scope_id, h.plan_time);
    IF FOUND THEN
        PERFORM pg_notify('{schema}', 'cancel');
    END IF;
    opened := (SELECT count(*) FROM unnest(verdicts) v WHERE v = 'open');
    expired := (SELECT count(*) FROM unnest(verdicts) v WHERE v = 'expire');
    IF opened > 0 THEN
        PERFORM pg_notify('{schema}', 'pending');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.settle_gates(text[], text[], text[], timestamptz[], text[], timestamptz[], timestamptz[], text[], text[], text[], timestamptz[], text[], timestamptz[]) IS 'Writes the verdicts about gates, which the caller has locked with lock_gates. open: the execution is due. wait: for this upstream, and the gate is checked again at this instant. expire: the wait has ended, so a scheduled execution becomes a skip upstream, and a backfill is FAILED. Returns how many opened and expired.';
