-- The bounds are texts in the catalog, written and read under the session's settings: pinned here.
CREATE OR REPLACE FUNCTION {schema}.partitions()
RETURNS TABLE (name text, from_plan_time timestamptz, before_plan_time timestamptz)
LANGUAGE sql STABLE SET timezone = 'UTC' SET datestyle = 'ISO' AS $$
    SELECT c.relname::text,
           (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([^'']+)''[)]'))[1]::timestamptz,
           (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO [(]''([^'']+)''[)]'))[1]::timestamptz
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = '{schema}.executions'::regclass
    ORDER BY 2
$$;
COMMENT ON FUNCTION {schema}.partitions() IS 'Lists the partitions of executions, each with its first plan_time and the instant before which its last plan_time lies.';
