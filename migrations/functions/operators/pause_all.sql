-- Operator functions: pause and resume all queues. Lock: the rows of queues by name, waiting.

CREATE OR REPLACE FUNCTION {schema}.pause_all(reason text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began  boolean := {schema}_internal.begin_action();
    paused text[];
BEGIN
    SELECT array_agg(n.name) FILTER (WHERE {schema}.pause_queue(n.name, reason, requested_by))
    INTO paused FROM (SELECT u.name FROM {schema}_internal.queues_in_use() u(name) ORDER BY u.name COLLATE "C") n;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('pause_all', 'queue', NULL, requested_by, 'done',
        arguments => jsonb_build_object('queues', paused), reason => reason);
    RETURN coalesce(cardinality(paused), 0);
END $$;
COMMENT ON FUNCTION {schema}.pause_all(text, text) IS 'Pauses every queue that is in use, until it is resumed. RUNNING executions finish, and nothing new starts. Returns the number of queues that were not paused before. A queue that is first used later is not paused.';
