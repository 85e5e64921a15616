CREATE OR REPLACE FUNCTION {schema}.finish(id bigint, token uuid, result jsonb DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    outcome {schema}.executions;
BEGIN
    outcome.status := 'SUCCESS';
    outcome.result := finish.result;
    RETURN {schema}_internal.end_attempt(finish.id, token, outcome, NULL, true, false);
END $$;
COMMENT ON FUNCTION {schema}.finish(bigint, uuid, jsonb) IS 'Ends an execution as SUCCESS with this result. It covers the input that existed at the claim. ok: written. already_finished: an earlier call under this token has written it. lost: the lease was stolen, released or swept, and nothing was written.';

CREATE OR REPLACE FUNCTION {schema}.finish(id bigint, token uuid, result jsonb, watermark bigint)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    outcome {schema}.executions;
BEGIN
    outcome.status := 'SUCCESS';
    outcome.result := finish.result;
    outcome.watermark := finish.watermark;
    RETURN {schema}_internal.end_attempt(finish.id, token, outcome, NULL, true, true);
END $$;
COMMENT ON FUNCTION {schema}.finish(bigint, uuid, jsonb, bigint) IS 'Ends an execution as SUCCESS, like finish(id, token, result), but covers the input up to watermark. NULL: it covers no input, and the scope stays dirty.';
