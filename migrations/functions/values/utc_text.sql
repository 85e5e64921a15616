-- The form of an instant in a text for people that SQL writes. It does not depend on the TimeZone of the session. Texts
-- in which microseconds matter, such as those of violations, have the instant as PostgreSQL writes it.
-- to_char returns NULL for infinity.
CREATE OR REPLACE FUNCTION {schema}_internal.utc_text(at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'), at::text)
$$;
COMMENT ON FUNCTION {schema}_internal.utc_text(timestamptz) IS 'Returns an instant as text for people: in UTC, to the second.';
