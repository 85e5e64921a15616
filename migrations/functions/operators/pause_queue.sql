CREATE OR REPLACE FUNCTION {schema}.pause_queue(
    queue text, reason text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held  {schema}.queues;
    began boolean;
BEGIN
    PERFORM {schema}_internal.check_queue(queue);
    began := {schema}_internal.begin_action();
    INSERT INTO {schema}.queues (name) VALUES (queue) ON CONFLICT DO NOTHING;
    SELECT q.* INTO held FROM {schema}.queues q WHERE q.name = pause_queue.queue FOR NO KEY UPDATE;
    UPDATE {schema}.queues q
    SET paused_at = coalesce(q.paused_at, {schema}.db_clock()), paused_reason = reason,
        paused_by = coalesce(requested_by, session_user)
    WHERE q.name = pause_queue.queue;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('pause_queue', 'queue', queue, requested_by, 'done', reason => reason);
    RETURN held.paused_at IS NULL;
END $$;
COMMENT ON FUNCTION {schema}.pause_queue(text, text, text) IS 'Pauses a queue until it is resumed. RUNNING executions finish, and nothing new starts. A second call replaces the reason. Returns false if the queue was paused already.';
