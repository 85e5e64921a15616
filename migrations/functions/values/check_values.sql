-- Values that no replica could use are refused when they are written. What SQL cannot check (a cron text, a
-- zone, the form of a URL) becomes the spec_error of the job instead.
-- An edit is checked only for the columns that it changes, so that a job whose row is older than a
-- check can still be paused, resumed and retired.

CREATE OR REPLACE FUNCTION {schema}_internal.check_target(job text, handler text, target jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    problem text[];
BEGIN
    -- Anything else is refused by a constraint of the table.
    IF jsonb_typeof(target) <> 'object' THEN
        RETURN;
    END IF;
    PERFORM {schema}_internal.check_json(job, 'target', target);
    problem := {schema}_internal.target_problem(handler, target);
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'job %: handler = %, and its target %', job, handler, problem[1]
            USING HINT = problem[2], ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_target(text, text, jsonb) IS 'Raises if this handler could never run this target.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_backoff(job text, steps interval[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    bad text := CASE
        WHEN array_ndims(steps) > 1 THEN 'is a multidimensional array'
        WHEN array_lower(steps, 1) <> 1 THEN 'has a first index other than 1'
        WHEN cardinality(steps) > 10000 THEN format('has %s elements; the limit is 10000', cardinality(steps))
        WHEN array_position(steps, NULL) IS NOT NULL THEN 'contains a NULL'
        WHEN interval '0' > ANY (steps) THEN format('contains a negative duration: %s', left(steps::text, 60))
    END;
BEGIN
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: retry_backoff %', job, bad
            USING HINT = 'Write the waits before attempt 2, 3 and so on, such as ''{1 m, 5 m, 15 m}''.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_backoff(text, interval[]) IS 'Raises unless each of these is a possible wait before the next attempt.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_scopes(job text, scopes text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    bad text;
BEGIN
    SELECT coalesce('has ' || quote_literal(left(u.id, 40)), 'has a NULL') || ' as element ' || u.n
    INTO bad FROM unnest(scopes) WITH ORDINALITY u(id, n)
    WHERE u.id IS NULL OR length(u.id) NOT BETWEEN 1 AND 200 OR {schema}_internal.name_problem(u.id) IS NOT NULL
    ORDER BY u.n LIMIT 1;
    IF array_ndims(scopes) > 1 THEN
        bad := 'is a multidimensional array';
    END IF;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: scopes %', job, bad
            USING HINT = 'Write a plain list of names, each of 1 to 200 characters without control characters, and without white space at its ends.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_scopes(text, text[]) IS 'Raises unless each of these is a possible name of a scope.';

-- Only the form of each item. A replica also checks names of exceptions and of signals, and the bounds of
-- numbers; a wrong one becomes the spec_error of the job.
CREATE OR REPLACE FUNCTION {schema}_internal.check_retry_filter(job text, field text, handler text, items text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    form text := CASE handler
        WHEN 'python' THEN '[^[:space:][:digit:]][^[:space:]]*'
        WHEN 'command' THEN '[0-9]+(-[0-9]+)?|SIG[A-Z0-9]+|[a-z_]+'
        WHEN 'sql' THEN '[0-9A-Z]{2}([0-9A-Z]{3})?|[a-z_]+'
        WHEN 'http' THEN '[0-9]+(-[0-9]+)?|[1-5]xx|[a-z_]+'
        ELSE '[^[:space:]](.*[^[:space:]])?' END;
    form_hint text := CASE handler
        WHEN 'python' THEN 'names of exceptions as error_msg shows them, such as ConnectionError'
        WHEN 'command' THEN 'exit statuses (75), ranges (64-78), signals (SIGKILL)'
        WHEN 'sql' THEN 'SQLSTATEs (40001), classes of them (40)'
        WHEN 'http' THEN 'statuses (503), ranges (500-599), 5xx'
        ELSE 'codes that the worker passes to fail' END;
    longest integer := CASE handler WHEN 'external' THEN 100 ELSE 200 END;
    bad text;
BEGIN
    SELECT coalesce('has ' || quote_literal(left(u.item, 40)), 'has a NULL') || ' as element ' || u.n
    INTO bad FROM unnest(items) WITH ORDINALITY u(item, n)
    WHERE u.item IS NULL OR length(u.item) > longest OR u.item !~ ('^(' || form || ')$')
    ORDER BY u.n LIMIT 1;
    IF array_ndims(items) > 1 THEN
        bad := 'is a multidimensional array';
    ELSIF cardinality(items) > 100 THEN
        bad := format('has %s elements; the limit is 100', cardinality(items));
    END IF;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: % %', job, field, bad
            USING HINT = format('Write a plain list of at most 100 items for handler = %s: %s, or error codes.',
                                handler, form_hint),
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_retry_filter(text, text, text, text[]) IS 'Raises unless each of these may be an item of retry_on or never_retry_on for this handler.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_labels(job text, labels jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    bad text;
BEGIN
    -- Anything else is refused by a constraint of the table.
    IF jsonb_typeof(labels) <> 'object' THEN
        RETURN;
    END IF;
    SELECT CASE
        WHEN length(l.key) > 63 OR l.key !~ '^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$'
            THEN format('has the key %s', quote_literal(left(l.key, 80)))
        ELSE format('has %s = %s', l.key, left(l.value::text, 80)) END
    INTO bad FROM jsonb_each(labels) l(key, value)
    WHERE length(l.key) > 63 OR l.key !~ '^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$'
       OR jsonb_typeof(l.value) <> 'string' OR length(l.value #>> '{}') NOT BETWEEN 1 AND 200
       OR l.value #>> '{}' ~ '[[:cntrl:]]'
    ORDER BY l.key COLLATE "C" LIMIT 1;
    IF bad IS NULL AND (SELECT count(*) FROM jsonb_object_keys(labels)) > 50 THEN
        bad := format('has %s keys; the limit is 50', (SELECT count(*) FROM jsonb_object_keys(labels)));
    END IF;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: labels %', job, bad
            USING HINT = 'Write at most 50 labels, such as {"team": "data"}: keys of at most 63 letters, digits and . _ / -, which begin and end with a letter or digit; values of 1 to 200 characters of text without control characters.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_labels(text, jsonb) IS 'Raises unless these are possible labels of a job.';

-- The same texts as in rules/deadlines.py and rules/durations.py.
CREATE OR REPLACE FUNCTION {schema}_internal.check_deadline(job text, field text, value text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wall     constant text := '^([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$';
    quantile constant text := '^\s*([1-9][0-9]?(\.[0-9]{1,3})?\s*\*\s*)?p[1-9][0-9]\s*$';
    duration constant text := '^(([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?([0-9]+us)?'
        '|P([0-9]+W)?([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+([.,][0-9]{1,6})?S)?)?)$';
    bad      text;
BEGIN
    IF (field <> 'expect_duration' AND value ~ wall) OR (field = 'expect_duration' AND value ~ quantile) THEN
        RETURN;
    END IF;
    IF value !~ duration OR value !~ '[0-9]' OR value ~ 'T$' THEN
        bad := 'is not understood';
    ELSIF value !~ '[1-9]' THEN
        bad := 'is zero';
    -- First what an interval could not hold.
    ELSIF value ~ '[0-9]{10}|[0-9]{6}[wW]' OR replace(value, ',', '.')::interval > interval '36525 days' THEN
        bad := 'is longer than 100 years';
    END IF;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: % = %, which %', job, field, quote_literal(left(value, 80)), bad
            USING HINT = CASE field WHEN 'expect_duration' THEN 'Write a duration, such as 90s or 1h30m, or a multiple of a quantile, such as 2*p95.'
                ELSE 'Write a wall time in the zone of the job, such as 06:00, or a duration, such as 90s, 15m or 1h30m.' END,
                ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_deadline(text, text, text) IS 'Raises unless this is a possible start_by, finish_by or expect_duration of a job.';

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_check_values() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM {schema}_internal.check_name('job', NEW.name);
    END IF;
    IF TG_OP = 'INSERT' OR NEW.queue <> OLD.queue THEN
        PERFORM {schema}_internal.check_name(format('job %s: queue', NEW.name), NEW.queue);
    END IF;
    IF TG_OP = 'INSERT' OR NEW.scope_kind <> OLD.scope_kind THEN
        PERFORM {schema}_internal.check_name(format('job %s: scope_kind', NEW.name), NEW.scope_kind);
    END IF;
    IF TG_OP = 'INSERT' OR (NEW.handler, NEW.target) IS DISTINCT FROM (OLD.handler, OLD.target) THEN
        PERFORM {schema}_internal.check_target(NEW.name, NEW.handler, NEW.target);
    END IF;
    IF NEW.queue = 'alerts' AND (TG_OP = 'INSERT'
            OR (NEW.handler, NEW.target, NEW.queue) IS DISTINCT FROM (OLD.handler, OLD.target, OLD.queue)) THEN
        PERFORM {schema}_internal.check_channel(NEW.name, NEW.handler, NEW.target);
    END IF;
    IF TG_OP = 'INSERT' OR NEW.payload IS DISTINCT FROM OLD.payload THEN
        PERFORM {schema}_internal.check_json(NEW.name, 'payload', NEW.payload);
    END IF;
    IF NEW.payload_schema IS NOT NULL
            AND (TG_OP = 'INSERT' OR NEW.payload_schema IS DISTINCT FROM OLD.payload_schema) THEN
        PERFORM {schema}_internal.check_json(NEW.name, 'payload_schema', NEW.payload_schema);
    END IF;
    IF TG_OP = 'INSERT' OR NEW.retry_backoff IS DISTINCT FROM OLD.retry_backoff THEN
        PERFORM {schema}_internal.check_backoff(NEW.name, NEW.retry_backoff);
    END IF;
    IF NEW.retry_on IS NOT NULL AND (TG_OP = 'INSERT'
            OR (NEW.handler, NEW.retry_on) IS DISTINCT FROM (OLD.handler, OLD.retry_on)) THEN
        PERFORM {schema}_internal.check_retry_filter(NEW.name, 'retry_on', NEW.handler, NEW.retry_on);
    END IF;
    IF NEW.never_retry_on IS NOT NULL AND (TG_OP = 'INSERT'
            OR (NEW.handler, NEW.never_retry_on) IS DISTINCT FROM (OLD.handler, OLD.never_retry_on)) THEN
        PERFORM {schema}_internal.check_retry_filter(NEW.name, 'never_retry_on', NEW.handler, NEW.never_retry_on);
    END IF;
    IF NEW.labels IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.labels IS DISTINCT FROM OLD.labels) THEN
        PERFORM {schema}_internal.check_labels(NEW.name, NEW.labels);
    END IF;
    IF NEW.notify IS NOT NULL AND (TG_OP = 'INSERT'
            OR (NEW.notify, NEW.queue) IS DISTINCT FROM (OLD.notify, OLD.queue)) THEN
        PERFORM {schema}_internal.check_notify(NEW.name, NEW.queue, NEW.notify);
    END IF;
    IF NEW.ping !~ '^https?://[^[:space:]/][^[:space:]]*$' AND (TG_OP = 'INSERT' OR NEW.ping IS DISTINCT FROM OLD.ping) THEN
        RAISE EXCEPTION 'job %: ping is not a URL', NEW.name
            USING HINT = 'Write it like https://hc-ping.com/UUID, or leave it NULL.', ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NEW.start_by IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.start_by IS DISTINCT FROM OLD.start_by) THEN
        PERFORM {schema}_internal.check_deadline(NEW.name, 'start_by', NEW.start_by);
    END IF;
    IF NEW.finish_by IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.finish_by IS DISTINCT FROM OLD.finish_by) THEN
        PERFORM {schema}_internal.check_deadline(NEW.name, 'finish_by', NEW.finish_by);
    END IF;
    IF NEW.expect_duration IS NOT NULL
            AND (TG_OP = 'INSERT' OR NEW.expect_duration IS DISTINCT FROM OLD.expect_duration) THEN
        PERFORM {schema}_internal.check_deadline(NEW.name, 'expect_duration', NEW.expect_duration);
    END IF;
    IF TG_OP = 'INSERT' OR NEW.scopes IS DISTINCT FROM OLD.scopes THEN
        PERFORM {schema}_internal.check_scopes(NEW.name, NEW.scopes);
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_check_values() IS 'Runs before a write to jobs. Refuses a name, a queue, a kind of scope, a target, a payload, a payload_schema, a retry_backoff, retry filters, labels, notify, a ping, deadlines, scopes or a channel that no replica could use.';
