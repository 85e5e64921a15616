CREATE OR REPLACE FUNCTION {schema}_internal.is_gated(definition {schema}.jobs) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_array_length(definition.requires), 0) + coalesce(jsonb_array_length(definition.after), 0) > 0
$$;
COMMENT ON FUNCTION {schema}_internal.is_gated({schema}.jobs) IS 'Returns whether the executions of this job wait for other jobs.';
