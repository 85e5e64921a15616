-- Lock: the row of the queue, then schedules by key, SKIP LOCKED, because a locked schedule is being claimed,
-- and its claim reads the new limit.
CREATE OR REPLACE FUNCTION {schema}.limit_queue(
    queue text, max_running integer DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before integer;
    began  boolean;
BEGIN
    PERFORM {schema}_internal.check_queue(queue);
    IF max_running < 1 THEN
        RAISE EXCEPTION 'queue %: max_running % is less than 1', queue, max_running
            USING HINT = 'To start nothing at all, pause the queue; NULL removes the limit.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    began := {schema}_internal.begin_action();
    INSERT INTO {schema}.queues (name) VALUES (queue) ON CONFLICT DO NOTHING;
    SELECT q.max_running INTO before FROM {schema}.queues q
    WHERE q.name = limit_queue.queue FOR NO KEY UPDATE;
    UPDATE {schema}.queues q SET max_running = limit_queue.max_running
    WHERE q.name = limit_queue.queue;
    IF max_running IS NULL OR max_running > before THEN
        UPDATE {schema}.schedules s
        SET parked = NULL, next_due_at = coalesce(s.next_plan_time, {schema}.db_clock())
        FROM (SELECT p.job_name, p.scope_kind, p.scope_id FROM {schema}.schedules p
              WHERE p.parked = 'limit' AND p.queue = limit_queue.queue
              ORDER BY p.job_name, p.scope_kind, p.scope_id
              LIMIT least(10000, max_running) FOR NO KEY UPDATE SKIP LOCKED) h
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (h.job_name, h.scope_kind, h.scope_id);
    END IF;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('limit_queue', 'queue', queue, requested_by, 'done',
        arguments => jsonb_build_object('max_running', max_running, 'before', before));
    PERFORM pg_notify('{schema}', 'queues');
    RETURN before;
END $$;
COMMENT ON FUNCTION {schema}.limit_queue(text, integer, text) IS 'Limits how many executions of this queue are RUNNING at once, over all replicas; NULL removes the limit. RUNNING executions beyond a lower limit finish. Returns the previous limit.';
