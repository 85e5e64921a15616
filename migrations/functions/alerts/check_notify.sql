CREATE OR REPLACE FUNCTION {schema}_internal.check_notify(job text, notify jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    events constant text[] := '{failed,recovered,overdue,late,skipped,deadline}';
    rule   jsonb;
    bad    text;
BEGIN
    -- Anything else is refused by a constraint of the table.
    IF jsonb_typeof(notify) <> 'array' THEN
        RETURN;
    END IF;
    IF jsonb_array_length(notify) > 20 THEN
        bad := format('has %s rules; the limit is 20', jsonb_array_length(notify));
    END IF;
    FOR rule IN SELECT r.value FROM jsonb_array_elements(notify) r LOOP
        EXIT WHEN bad IS NOT NULL;
        IF jsonb_typeof(rule) <> 'object' THEN
            bad := format('contains %s', left(rule::text, 80));
        ELSIF EXISTS (SELECT FROM jsonb_object_keys(rule) k WHERE k NOT IN ('channel', 'on', 'after', 'remind')) THEN
            bad := format('has the unknown key %s', (SELECT min(k) FROM jsonb_object_keys(rule) k
                                                     WHERE k NOT IN ('channel', 'on', 'after', 'remind')));
        ELSIF coalesce(jsonb_typeof(rule -> 'channel') <> 'string', true)
              OR rule ->> 'channel' !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$' THEN
            bad := format('has channel = %s', coalesce(left((rule -> 'channel')::text, 80), 'nothing'));
        ELSIF coalesce(rule -> 'on', 'null') <> 'null' AND (jsonb_typeof(rule -> 'on') <> 'array' OR rule -> 'on' = '[]'
              OR NOT to_jsonb(events) @> (rule -> 'on')) THEN
            bad := format('has on = %s', left((rule -> 'on')::text, 80));
        ELSIF rule ? 'after' AND NOT coalesce(
                jsonb_typeof(rule -> 'after') = 'number' AND rule ->> 'after' ~ '^[1-9][0-9]{0,3}$', false) THEN
            bad := format('has after = %s', left((rule -> 'after')::text, 80));
        ELSIF {schema}_internal.remind_problem(rule -> 'remind') THEN
            bad := format('has remind = %s', left((rule -> 'remind')::text, 80));
        END IF;
    END LOOP;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: notify %', job, bad
            USING HINT = 'Write at most 20 rules such as [{"channel": "ops", "on": ["failed", "recovered"], "after": 3, "remind": "4 hours"}]. channel: a name of letters, digits and . _ -; on: failed, recovered, overdue, late, skipped, deadline; after: 1 to 9999; remind: an interval of at least 1 minute and at most 36525 days, or null.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_notify(text, jsonb) IS 'Raises unless these are valid rules for the alerts of a job.';

CREATE OR REPLACE FUNCTION {schema}_internal.remind_problem(remind jsonb) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE coalesce(jsonb_typeof(remind), 'null') WHEN 'null' THEN false
        WHEN 'string' THEN (remind #>> '{}')::interval NOT BETWEEN interval '1 minute' AND interval '36525 days'
        ELSE true END;
EXCEPTION WHEN data_exception THEN
    RETURN true;
END $$;
COMMENT ON FUNCTION {schema}_internal.remind_problem(jsonb) IS 'Returns whether this is not a valid interval between reminders. NULL is valid: there are no reminders.';
