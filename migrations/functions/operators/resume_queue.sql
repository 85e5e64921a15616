CREATE OR REPLACE FUNCTION {schema}.resume_queue(queue text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began   boolean;
    resumed boolean;
BEGIN
    PERFORM {schema}_internal.check_queue(queue);
    began := {schema}_internal.begin_action();
    UPDATE {schema}.queues q SET paused_at = NULL, paused_by = NULL, paused_reason = NULL
    WHERE q.name = resume_queue.queue AND q.paused_at IS NOT NULL;
    resumed := FOUND;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('resume_queue', 'queue', queue, requested_by,
        CASE WHEN resumed THEN 'done' ELSE 'unchanged' END);
    IF resumed THEN
        PERFORM pg_notify('{schema}', 'queues');
    END IF;
    RETURN resumed;
END $$;
COMMENT ON FUNCTION {schema}.resume_queue(text, text) IS 'Resumes a queue. The catch_up of each job decides about plan_times that were due during the pause. Returns false if the queue was not paused.';
