-- Operator functions: pause and resume all queues. Lock: the rows of queues by name, waiting.

-- SECURITY DEFINER, because the view queue_status calls it with the rights of its reader.
CREATE OR REPLACE FUNCTION {schema}_internal.queues_in_use() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT q.name FROM {schema}.queues q
    UNION SELECT j.queue FROM {schema}.jobs j WHERE j.retired_at IS NULL
    UNION SELECT q.name FROM {schema}.runners r, unnest(r.queues) AS q(name)
          WHERE r.stale_after > {schema}.db_now() - interval '1 day'
    UNION SELECT e.queue FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
    ORDER BY 1
$$;
COMMENT ON FUNCTION {schema}_internal.queues_in_use() IS 'Lists the queues of jobs, waiting executions, the table queues, and runners that were seen within a day.';

-- For the page: upcoming sorts all schedules, because the due index does not contain woken ones.
CREATE OR REPLACE FUNCTION {schema}_internal.next_firings(of_queue text, before timestamptz, most integer)
RETURNS TABLE (job_name text, scope_kind text, scope_id text, plan_time timestamptz, due_at timestamptz)
LANGUAGE sql STABLE ROWS 50 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
    (SELECT s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, s.next_due_at FROM {schema}.schedules s
     WHERE NOT s.woken AND s.queue = of_queue AND s.next_due_at >= {schema}.db_now() AND s.next_due_at < before
       AND s.next_plan_time IS NOT NULL AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
     ORDER BY s.next_due_at LIMIT most)
    UNION ALL
    (SELECT s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, s.next_due_at FROM {schema}.schedules s
     WHERE s.woken AND s.queue = of_queue AND s.next_due_at >= {schema}.db_now() AND s.next_due_at < before
       AND s.next_plan_time IS NOT NULL AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
     ORDER BY s.next_due_at LIMIT most)
$$;
COMMENT ON FUNCTION {schema}_internal.next_firings(text, timestamptz, integer) IS 'Returns the next plan_times of a queue that are due before this instant, the soonest ones: at most this many that were planned, and as many that are planned anew.';

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
