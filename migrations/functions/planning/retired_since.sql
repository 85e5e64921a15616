CREATE OR REPLACE FUNCTION {schema}_internal.retired_since(scope {schema}.schedules, at timestamptz)
RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- A return is recorded at its COMMIT. One that is not recorded was made by this transaction, which takes it back.
    IF scope.returned_at IS NOT NULL AND EXISTS (
        SELECT FROM {schema}.scope_retirements h
        WHERE (h.job_name, h.scope_kind, h.scope_id, h.retired_at)
            = (scope.job_name, scope.scope_kind, scope.scope_id, scope.retired_at) AND h.returned_at IS NULL) THEN
        RETURN scope.retired_at;
    END IF;
    RETURN at;
END $$;
COMMENT ON FUNCTION {schema}_internal.retired_since({schema}.schedules, timestamptz) IS 'Returns since when a scope is retired that retires at this instant.';
