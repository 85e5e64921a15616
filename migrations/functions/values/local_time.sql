CREATE OR REPLACE FUNCTION {schema}_internal.local_time(at timestamptz, zone text) RETURNS timestamp
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN at AT TIME ZONE zone;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN NULL;  -- a job with a misspelt zone must not remove the rows of others
END $$;
COMMENT ON FUNCTION {schema}_internal.local_time(timestamptz, text) IS 'Returns the local time in this zone; NULL if PostgreSQL does not know the zone.';
