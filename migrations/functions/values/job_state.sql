-- PostgreSQL inlines this function, so it reads no table: see claiming/conditions.sql.
CREATE OR REPLACE FUNCTION {schema}_internal.job_state(
    retired_at timestamptz, spec_error text, paused_at timestamptz, paused_until timestamptz,
    queue_paused_at timestamptz)
RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN retired_at IS NOT NULL THEN 'retired'
                WHEN spec_error IS NOT NULL THEN 'broken'
                WHEN paused_at IS NOT NULL AND coalesce(paused_until > {schema}.db_now(), true) THEN 'paused'
                WHEN queue_paused_at IS NOT NULL THEN 'queue_paused'
                ELSE 'active' END
$$;
COMMENT ON FUNCTION {schema}_internal.job_state(timestamptz, text, timestamptz, timestamptz, timestamptz) IS 'Returns the state of a job with these columns, in a queue that was paused then: active, paused, queue_paused, broken (spec_error contains the reason) or retired.';
