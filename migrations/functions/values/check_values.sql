-- Values that would make the ledger inconsistent, or that SQL itself reads, are refused when they are written: names,
-- keys and types of targets, sizes of JSON, intervals, rules for alerts. A replica checks every other value when it reads the job,
-- and a wrong one becomes the spec_error of the job.
-- An edit is checked only for the columns that it changes, so that a job whose row is older than a
-- check can still be paused, resumed and retired. While a row is inserted, every column of OLD is NULL.

-- The keys and the types of their values, so that masks and redactions find every secret where they look for it.
-- The values are not shown, because they may be secret. The keys of an external target belong to its workers.
CREATE OR REPLACE FUNCTION {schema}_internal.check_target(job text, handler text, target jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    bad     text;
    example text;
BEGIN
    -- Anything else is refused by a constraint of the table.
    IF jsonb_typeof(target) <> 'object' THEN
        RETURN;
    END IF;
    PERFORM {schema}_internal.check_json(job, 'target', target);
    SELECT CASE
        WHEN NOT target ? f.needed THEN format('has no "%s"', f.needed)
        ELSE (SELECT CASE
                  WHEN NOT f.types ? e.key THEN format('has "%s", which handler = %s does not use', left(e.key, 60), handler)
                  WHEN e.key = 'command' THEN 'has a "command" that is neither a string nor a list of strings'
                  ELSE format('has "%s" of another JSON type than %s', e.key, f.types ->> e.key) END
              FROM jsonb_each(target) e
              WHERE NOT f.types ? e.key OR jsonb_typeof(e.value) <> f.types ->> e.key
                 OR e.key = 'command' AND jsonb_path_exists(e.value, '$[*].type() ? (@ != "string")')
              ORDER BY e.key COLLATE "C" LIMIT 1) END, f.example
    INTO bad, example
    FROM (VALUES
        ('python', 'python', jsonb '{"python": "string"}', '{"python": "package.module:name"}'),
        ('command', 'command', '{"command": null, "env": "object", "cwd": "string"}',
         '{"command": ["backup", "--full"]} or {"command": "backup | gzip"}'),
        ('sql', 'sql', '{"sql": "string"}', '{"sql": "DELETE FROM sessions"}'),
        ('http', 'url', '{"url": "string", "method": "string", "headers": "object", "body": null,
          "expect": "array", "allow_private": "boolean"}', '{"url": "https://example.com/"}'))
        f(of_handler, needed, types, example)
    WHERE f.of_handler = handler;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: handler = %, and its target %', job, handler, bad
            USING HINT = 'Write for example ' || example || '.', ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_target(text, text, jsonb) IS 'Raises if this handler could never run a target with these keys and types.';

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

CREATE OR REPLACE FUNCTION {schema}_internal.check_runner_labels(what text, labels text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    bad text;
BEGIN
    SELECT coalesce('has ' || quote_literal(left(u.label, 60)), 'has a NULL') || ' as element ' || u.n
    INTO bad FROM unnest(labels) WITH ORDINALITY u(label, n)
    WHERE (u.label ~ '^[A-Za-z0-9][A-Za-z0-9._/-]*=[A-Za-z0-9][A-Za-z0-9._:@/+-]*$' AND length(u.label) <= 200) IS NOT TRUE
    ORDER BY u.n LIMIT 1;
    bad := coalesce(bad, (SELECT format('has two values of %s', split_part(u.label, '=', 1)) FROM unnest(labels) u(label)
                          GROUP BY split_part(u.label, '=', 1) HAVING count(*) > 1 LIMIT 1),
                    CASE WHEN labels IS NULL THEN 'is NULL' WHEN array_ndims(labels) > 1 THEN 'is a multidimensional array' END);
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '% %', what, bad
            USING HINT = 'Write a list of KEY=VALUE, each key once, such as ''{role=web,dc=fra}''.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_runner_labels(text, text[]) IS 'Raises unless these can be labels of one runner.';

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_check_values() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}_internal.check_name(n.what, n.name)
    FROM (VALUES ('job', NEW.name, OLD.name), (format('job %s: queue', NEW.name), NEW.queue, OLD.queue),
                 (format('job %s: scope_kind', NEW.name), NEW.scope_kind, OLD.scope_kind)) n(what, name, old)
    WHERE n.name IS DISTINCT FROM n.old;
    IF (NEW.handler, NEW.target) IS DISTINCT FROM (OLD.handler, OLD.target) THEN
        PERFORM {schema}_internal.check_target(NEW.name, NEW.handler, NEW.target);
    END IF;
    PERFORM {schema}_internal.check_json(NEW.name, f.field, f.value)
    FROM (VALUES ('payload', NEW.payload, OLD.payload), ('payload_schema', NEW.payload_schema, OLD.payload_schema),
                 ('labels', NEW.labels, OLD.labels)) f(field, value, old)
    WHERE f.value IS DISTINCT FROM f.old;
    IF NEW.retry_backoff IS DISTINCT FROM OLD.retry_backoff THEN
        PERFORM {schema}_internal.check_backoff(NEW.name, NEW.retry_backoff);
    END IF;
    IF NEW.notify IS DISTINCT FROM OLD.notify THEN
        PERFORM {schema}_internal.check_notify(NEW.name, NEW.notify);
    END IF;
    IF NEW.scopes IS DISTINCT FROM OLD.scopes THEN
        PERFORM {schema}_internal.check_scopes(NEW.name, NEW.scopes);
    END IF;
    IF NEW.on IS DISTINCT FROM OLD.on AND NEW.on IS NOT NULL THEN
        PERFORM {schema}_internal.check_runner_labels(format('job %s: "on"', NEW.name), NEW.on);
        -- In order, so that an apply that names the same labels changes nothing.
        NEW.on := ARRAY(SELECT u.label FROM unnest(NEW.on) u(label) ORDER BY u.label COLLATE "C");
    END IF;
    IF NEW.every IS NOT NULL THEN
        PERFORM {schema}_internal.check_runner_labels(format('job %s: every', NEW.name), NEW.every);
        NEW.every := ARRAY(SELECT u.label FROM unnest(NEW.every) u(label) ORDER BY u.label COLLATE "C");
        IF NEW.on IS DISTINCT FROM OLD.on AND NEW.on <> NEW.every THEN
            RAISE EXCEPTION 'job %: "on" is %, and every is %', NEW.name, array_to_string(NEW.on, ','),
                    array_to_string(NEW.every, ',')
                USING HINT = 'Set one of them: every sets "on".', ERRCODE = 'invalid_parameter_value';
        END IF;
        NEW.on := NEW.every;
        IF NEW.scopes IS NOT NULL OR NEW.scope_kind NOT IN ('global', 'host') THEN
            RAISE EXCEPTION 'job %: it has every, and also scopes of the kind %', NEW.name, NEW.scope_kind
                USING HINT = 'Remove every, or the scopes: with every, each host is a scope.',
                      ERRCODE = 'invalid_parameter_value';
        END IF;
        NEW.scope_kind := 'host';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_check_values() IS 'Runs before a write to jobs. Refuses a name, a queue, labels of runners, a kind of scope, a target, a payload, a payload_schema, labels, a retry_backoff, notify or scopes that the ledger could not keep or use.';
