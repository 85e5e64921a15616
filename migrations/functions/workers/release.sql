CREATE OR REPLACE FUNCTION {schema}.release(id bigint, token uuid)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held {schema}.executions := {schema}_internal.lock_lease(release.id, token);
BEGIN
    IF held.id IS NULL THEN
        RETURN {schema}_internal.lease_refusal(release.id, token);
    END IF;
    PERFORM {schema}_internal.release_executions(
        ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id], ARRAY[held.plan_time],
        ARRAY[token], 'shutdown', 'released by its worker', held.plan_time, held.plan_time);
    PERFORM {schema}_internal.rearm_after(held);
    RETURN 'ok';
END $$;
COMMENT ON FUNCTION {schema}.release(bigint, uuid) IS 'Returns an execution to PENDING with one more attempt, because its worker stops. After a requested cancel it is CANCELLED instead. Call it only when the work has ended or never began. ok: written. already_finished, lost: see finish.';
