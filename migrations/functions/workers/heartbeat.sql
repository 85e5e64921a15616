CREATE OR REPLACE FUNCTION {schema}.heartbeat(id bigint, token uuid, lease interval DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held      {schema}.executions;
    renewed   interval := lease;
    cancelled boolean;
BEGIN
    IF lease NOT BETWEEN interval '3 s' AND interval '36525 days' THEN
        RAISE EXCEPTION 'execution %: lease = %', heartbeat.id, lease
            USING HINT = 'A lease is 3 s to 36525 days long; NULL: the stale_timeout of the job.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    held := {schema}_internal.lock_lease(heartbeat.id, token);
    IF held.id IS NULL THEN
        PERFORM {schema}_internal.lease_refusal(heartbeat.id, token);
        RETURN 'lost';
    END IF;
    IF renewed IS NULL THEN
        renewed := coalesce((SELECT j.stale_timeout FROM {schema}.jobs j WHERE j.name = held.job_name), '60 s');
    END IF;
    SELECT h.cancel_requested INTO cancelled FROM {schema}_internal.heartbeat_leases(
        ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id], ARRAY[held.plan_time],
        ARRAY[token], ARRAY[renewed], held.plan_time, held.plan_time) h;
    -- SKIP LOCKED: a claim_next of the same worker may hold its row.
    UPDATE {schema}.runners r
    SET heartbeat_at = {schema}.db_clock(), stale_after = {schema}.db_clock() + interval '60 s',
        started_at = CASE WHEN r.stale_after < {schema}.db_clock() THEN {schema}.db_clock() ELSE r.started_at END
    WHERE r.id = (SELECT n.id FROM {schema}.runners n WHERE n.id = held.runner_id AND n.version = 'external'
                  FOR NO KEY UPDATE SKIP LOCKED);
    RETURN CASE WHEN cancelled THEN 'cancel_requested' ELSE 'ok' END;
END $$;
COMMENT ON FUNCTION {schema}.heartbeat(bigint, uuid, interval) IS 'Renews a lease, for the interval lease or the stale_timeout of the job. ok: it is renewed. cancel_requested: it is renewed, and a cancel was requested; stop the work and call fail, which ends the execution as CANCELLED. lost: the lease was stolen or has ended; stop the work, because nothing can be written under this token.';
