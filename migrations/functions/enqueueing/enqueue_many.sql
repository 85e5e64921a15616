CREATE OR REPLACE FUNCTION {schema}_internal.check_items(
    job text, payloads jsonb[], keys text[], watermarks bigint[], scope_ids text[])
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    lengths integer[] := array_remove(ARRAY[cardinality(payloads), cardinality(keys),
                                            cardinality(watermarks), cardinality(scope_ids)], NULL);
BEGIN
    IF lengths[1] IS NULL OR lengths[1] <> ANY (lengths) THEN
        RAISE EXCEPTION 'job %: payloads, keys, watermarks and scope_ids have % elements', job,
                coalesce(nullif(array_to_string(lengths, ' and '), ''), 'no')
            USING HINT = 'Pass one of these arrays or more, each with one element for each item.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF lengths[1] > 100000 THEN
        RAISE EXCEPTION 'job %: % items are too many for one call; the limit is 100000', job, lengths[1]
            USING HINT = 'Call it several times; one transaction may hold all the calls.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN lengths[1];
END $$;
COMMENT ON FUNCTION {schema}_internal.check_items(text, jsonb[], text[], bigint[], text[]) IS 'Returns the number of items. Raises unless the arrays have one length, of at most 100,000.';

CREATE OR REPLACE FUNCTION {schema}.enqueue_many(
    job text, payloads jsonb[] DEFAULT NULL, keys text[] DEFAULT NULL, watermarks bigint[] DEFAULT NULL,
    scope_ids text[] DEFAULT NULL, scope_kind text DEFAULT NULL, group_id uuid DEFAULT NULL,
    requested_by text DEFAULT NULL, traceparent text DEFAULT NULL)
RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    count      constant integer := {schema}_internal.check_items(job, payloads, keys, watermarks, scope_ids);
    requester  constant text := coalesce(requested_by, session_user);
    of_scopes  text[] := coalesce(scope_ids, array_fill('global'::text, ARRAY[count]));
    definition {schema}.jobs;
    kind       text;
    scopes     {schema}.schedules[];
    scope      {schema}.schedules;
    item       record;
    made       bigint;
    ids        bigint[] := array_fill(NULL::bigint, ARRAY[count]);
BEGIN
    IF traceparent IS NOT NULL THEN
        PERFORM {schema}_internal.check_traceparent(job, traceparent);
    END IF;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    ELSIF count = 0 THEN
        RETURN ids;
    END IF;
    kind := coalesce(enqueue_many.scope_kind, definition.scope_kind);
    IF keys IS NULL AND watermarks IS NULL THEN
        FOREACH scope IN ARRAY ARRAY(
                SELECT {schema}_internal.find_or_create_scope(job, kind, u.id)
                FROM (SELECT DISTINCT o.id COLLATE "C" AS id FROM unnest(of_scopes) o(id) ORDER BY 1) u) LOOP
            IF definition.retired_at IS NOT NULL OR definition.handler = 'observed' OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
                PERFORM {schema}_internal.check_trigger(definition, scope, force => true);
            END IF;
        END LOOP;
        ids := {schema}_internal.create_messages(definition, kind, of_scopes, payloads, group_id, requester,
                                                      traceparent);
        PERFORM pg_notify('{schema}', 'pending');
        RETURN ids;
    END IF;
    scopes := ARRAY(SELECT s FROM {schema}_internal.lock_scopes(
        job, kind, ARRAY(SELECT DISTINCT u.id COLLATE "C" FROM unnest(of_scopes) u(id) ORDER BY 1)) s);
    -- Again under the locks: no edit commits from here on.
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    FOREACH scope IN ARRAY scopes LOOP
        IF definition.retired_at IS NOT NULL OR definition.handler = 'observed' OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
            PERFORM {schema}_internal.check_trigger(definition, scope, force => true);
        END IF;
    END LOOP;
    FOR item IN
        SELECT array_agg(u.n) AS places, u.scope_id, u.key, max(u.watermark) AS watermark,
               (array_agg(u.payload ORDER BY u.n DESC) FILTER (WHERE u.payload IS NOT NULL))[1] AS payload
        FROM unnest(of_scopes, keys, payloads, watermarks) WITH ORDINALITY u(scope_id, key, payload, watermark, n)
        GROUP BY u.scope_id, u.key, CASE WHEN u.key IS NULL AND NOT (u.payload IS NULL AND u.watermark IS NOT NULL)
                                         THEN u.n END
        ORDER BY min(u.n)
    LOOP
        made := {schema}.enqueue(job, item.scope_id, item.watermark, item.payload, item.key, kind,
                                 group_id, requester, traceparent => traceparent);
        FOR place IN 1 .. cardinality(item.places) LOOP
            ids[item.places[place]] := made;
        END LOOP;
    END LOOP;
    RETURN ids;
END $$;
COMMENT ON FUNCTION {schema}.enqueue_many(text, jsonb[], text[], bigint[], text[], text, uuid, text, text) IS 'Enqueues many items of one job in one transaction, as enqueue does one by one, and returns an id for each item, in their order. The item n has the elements n of these arrays; an array that is left out is NULL for every item (scope_ids: the scope of a global job). Items of one scope and key are merged first, and so are watermarks alone of one scope: the greatest watermark, the newest payload that is not NULL. Their ids are the same. traceparent: the span that enqueues all of them, see enqueue. At most 100,000 items. Without keys and watermarks, a call for existing scopes takes no lock. Otherwise it locks the schedule rows of all scopes in key order, and waits for them (lock_timeout).';
