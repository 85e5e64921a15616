CREATE OR REPLACE FUNCTION {schema}.not_ready(id bigint, token uuid, after interval, message text)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held {schema}.executions;
BEGIN
    IF after IS NULL OR after < '0' OR after > interval '36525 days' THEN
        RAISE EXCEPTION 'after = %: it is not a duration from 0 to 100 years', coalesce(after::text, 'NULL')
            USING HINT = 'Pass the time until the next attempt, such as interval ''5 minutes''.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    held := {schema}_internal.lock_lease(not_ready.id, token);
    IF held.id IS NULL THEN
        RETURN {schema}_internal.lease_refusal(not_ready.id, token);
    END IF;
    PERFORM {schema}_internal.postpone_executions(
        ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id], ARRAY[held.plan_time],
        ARRAY[token], ARRAY[after], ARRAY[left(message, 4000)], ARRAY[NULL::bigint], held.plan_time, held.plan_time);
    PERFORM {schema}_internal.rearm_after(held);
    RETURN 'ok';
END $$;
COMMENT ON FUNCTION {schema}.not_ready(bigint, uuid, interval, text) IS 'Returns an execution to PENDING, because a condition that its worker has found is not met, such as a file that is missing. The attempt does not count. The next one is due after this interval, and at the latest at the end of the wait (wait_at_most of the job, by default until the next plan_time). After that end the execution is FAILED, with the code not_ready. ok: written. already_finished, lost: see finish.';
