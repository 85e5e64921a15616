CREATE OR REPLACE FUNCTION {schema}_internal.message_plan_time(execution_id bigint, before timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT before - interval '1 microsecond'
        * ((date_part('microseconds', before)::bigint + 999998 - 2 * (execution_id % 499999)) % 1000000)
$$;
COMMENT ON FUNCTION {schema}_internal.message_plan_time(bigint, timestamptz) IS 'Returns the last instant up to before whose fraction of a second is that of this id: an even number of microseconds, 2 to 999,998. Within a second two messages share a fraction only if 499,999 ids lie between them.';

CREATE OR REPLACE FUNCTION {schema}_internal.create_message(
    definition {schema}.jobs, kind text, scope text, due timestamptz, new_payload jsonb, of_group uuid,
    requester text, enqueued_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made constant bigint := nextval('{schema}.execution_id');
    now_ constant timestamptz := {schema}.db_clock();
    at   timestamptz := {schema}_internal.message_plan_time(made, now_);
BEGIN
    -- After the clock was set back, a second occurs again. ON CONFLICT would cost as much as the rest of the INSERT.
    WHILE EXISTS (SELECT FROM {schema}.executions e
                  WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (definition.name, kind, scope, at)) LOOP
        at := at - interval '1 second';
    END LOOP;
    PERFORM {schema}_internal.check_partition(definition.name, at);
    INSERT INTO {schema}.executions
        (job_name, scope_kind, scope_id, plan_time, id, status, trigger, revision, queue, due_at,
         next_attempt_at, payload, group_id, attempt, max_attempts, requested_by, traceparent)
    VALUES (definition.name, kind, scope, at, made, 'PENDING', 'enqueue', definition.revision, definition.queue,
            greatest(due, now_), greatest(due, now_), coalesce(new_payload, definition.payload), of_group, 0,
            definition.max_attempts, requester, enqueued_by);
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_message({schema}.jobs, text, text, timestamptz, jsonb, uuid, text, text) IS 'Creates a PENDING execution that is merged with no other one, due now or at due, and returns its id. enqueued_by: its traceparent. It needs no lock.';

CREATE OR REPLACE FUNCTION {schema}_internal.create_messages(
    definition {schema}.jobs, kind text, scope_ids text[], payloads jsonb[], of_group uuid, requester text,
    enqueued_by text)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    microsecond constant interval := '1 microsecond';
    count       constant integer := cardinality(scope_ids);
    now_        constant timestamptz := {schema}.db_clock();
    ids         constant bigint[] := ARRAY(SELECT nextval('{schema}.execution_id') FROM generate_series(1, count));
    -- Each message is due a microsecond after the one before it, and the last one now: they start in their order.
    last        timestamptz := now_ - count * microsecond;
    created     integer;
    missing     integer := count;
BEGIN
    PERFORM {schema}_internal.check_json(definition.name, 'payload', u.payload) FROM unnest(payloads) u(payload)
    WHERE {schema}_internal.json_problem(u.payload) IS NOT NULL;
    LOOP
        PERFORM {schema}_internal.check_partition(definition.name, last - interval '1 second');
        PERFORM {schema}_internal.check_partition(definition.name, last);
        INSERT INTO {schema}.executions
            (job_name, scope_kind, scope_id, plan_time, id, status, trigger, revision, queue, due_at,
             next_attempt_at, payload, group_id, attempt, max_attempts, requested_by, traceparent)
        SELECT definition.name, kind, m.scope_id, {schema}_internal.message_plan_time(m.id, last), m.id, 'PENDING',
               'enqueue', definition.revision, definition.queue, now_ - (count - m.n) * microsecond,
               now_ - (count - m.n) * microsecond, coalesce(m.payload, definition.payload), of_group, 0,
               definition.max_attempts, requester, enqueued_by
        FROM unnest(ids, scope_ids, payloads) WITH ORDINALITY m(id, scope_id, payload, n)
        -- Of the second round on. The first one creates all, unless the clock was set back.
        WHERE missing = count OR NOT EXISTS (SELECT FROM {schema}.executions e WHERE e.id = m.id)
        ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO NOTHING;
        GET DIAGNOSTICS created = ROW_COUNT;
        missing := missing - created;
        EXIT WHEN missing = 0;
        last := last - interval '1 second';
    END LOOP;
    RETURN ids;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_messages({schema}.jobs, text, text[], jsonb[], uuid, text, text) IS 'Creates a PENDING execution for each of these payloads as create_message does, due now, and returns their ids. It needs no lock.';
