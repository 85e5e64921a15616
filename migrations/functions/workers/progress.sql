CREATE OR REPLACE FUNCTION {schema}.progress(
    id bigint, token uuid, done bigint, total bigint DEFAULT NULL, text text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held {schema}.executions;
BEGIN
    IF done IS NULL OR done < 0 OR total < 0 THEN
        RAISE EXCEPTION 'execution %: invalid progress % of %', progress.id, coalesce(done::text, 'NULL'),
                coalesce(total::text, 'NULL')
            USING HINT = 'Give done and total as numbers of units of work, 0 or more. Give NULL as total if it is not known.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT e.* INTO held FROM {schema}.executions e
    WHERE e.id = progress.id AND e.lease_token = progress.token AND e.status = (SELECT 'RUNNING');
    IF NOT FOUND THEN
        PERFORM {schema}_internal.lease_refusal(progress.id, token);
        RETURN 'lost';
    END IF;
    PERFORM {schema}_internal.store_progress(
        ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id], ARRAY[held.plan_time], ARRAY[token],
        held.plan_time, held.plan_time, ARRAY[least(done, total)], ARRAY[total],
        ARRAY[left({schema}_internal.masked(progress.text), 200)]);
    RETURN CASE WHEN held.cancel_requested_at IS NULL THEN 'ok' ELSE 'cancel_requested' END;
END $$;
COMMENT ON FUNCTION {schema}.progress(bigint, uuid, bigint, bigint, text) IS 'Reports the progress of an execution: done of total units of work, and what it is doing. It does not renew the lease. A done above total counts as total, passwords in the text are masked, and a text of more than 200 characters is cut. Each call writes one row, so report at most once a second. ok: it is stored. cancel_requested: it is stored, and a cancel was requested, as with heartbeat. lost: nothing was stored, because the lease was stolen or has ended.';
