CREATE OR REPLACE FUNCTION {schema}.resume_all(requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began   boolean := {schema}_internal.begin_action();
    resumed text[];
BEGIN
    SELECT array_agg(n.name) FILTER (WHERE {schema}.resume_queue(n.name, requested_by))
    INTO resumed FROM (SELECT q.name FROM {schema}.queues q WHERE q.paused_at IS NOT NULL
                       ORDER BY q.name) n;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('resume_all', 'queue', NULL, requested_by,
        CASE WHEN resumed IS NULL THEN 'unchanged' ELSE 'done' END,
        arguments => jsonb_build_object('queues', resumed));
    RETURN coalesce(cardinality(resumed), 0);
END $$;
COMMENT ON FUNCTION {schema}.resume_all(text) IS 'Resumes every paused queue, and returns how many there were.';
