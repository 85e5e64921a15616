-- What a job requires of other jobs, checked and kept up to date by triggers of jobs. A job with `after` has a copy of the
-- columns that decide the plan_times of its upstream, so that a revision holds all that is needed to explain its history.
-- An edit of an upstream touches the jobs that name it, in the same transaction.
-- Lock order: the job (held by the write), then its upstreams, also the indirect ones, FOR SHARE. Of several transactions
-- that together would make a cycle, each waits for the next one, so that one of them fails.

CREATE OR REPLACE FUNCTION {schema}_internal.timing_columns() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['schedule', 'timezone', 'calendar', 'on_excluded', 'day_or', 'dst_gap', 'dst_fold', 'starts_at', 'ends_at']
$$;
COMMENT ON FUNCTION {schema}_internal.timing_columns() IS 'Lists the columns of jobs that a job with `after` has from its upstream.';

CREATE OR REPLACE FUNCTION {schema}_internal.job_timing(job {schema}.jobs) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_object_agg(c.name, to_jsonb(job) -> c.name) FROM unnest({schema}_internal.timing_columns()) c(name)
$$;
COMMENT ON FUNCTION {schema}_internal.job_timing({schema}.jobs) IS 'Returns the columns of a job that decide its plan_times.';

-- The root of a chain of `after` decides the hash of an H. It is kept only if it is not the upstream itself.
CREATE OR REPLACE FUNCTION {schema}_internal.gates_of(job {schema}.jobs)
RETURNS TABLE (field text, job_name text, scope text) LANGUAGE sql IMMUTABLE AS $$
    SELECT 'after', e.value ->> 'job', e.value ->> 'scope' FROM jsonb_array_elements(job.after) e
    UNION ALL
    SELECT 'requires', e.value ->> 'job', e.value ->> 'scope' FROM jsonb_array_elements(job.requires) e
$$;
COMMENT ON FUNCTION {schema}_internal.gates_of({schema}.jobs) IS 'Returns what a job requires, with the column that names it.';

CREATE OR REPLACE FUNCTION {schema}_internal.dependents_of(job text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT j.name FROM {schema}.jobs j WHERE j.after @> jsonb_build_array(jsonb_build_object('job', job))
    UNION
    SELECT j.name FROM {schema}.jobs j WHERE j.requires @> jsonb_build_array(jsonb_build_object('job', job))
    ORDER BY 1
$$;
COMMENT ON FUNCTION {schema}_internal.dependents_of(text) IS 'Returns the jobs that name this job in requires or after, by name.';

CREATE OR REPLACE FUNCTION {schema}_internal.checked_requirements(job text, field text, required jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    bad text;
BEGIN
    -- Anything else is refused by a constraint of the table.
    IF jsonb_typeof(required) <> 'array' THEN
        RETURN required;
    END IF;
    SELECT CASE
        WHEN jsonb_array_length(required) NOT BETWEEN 1 AND 20
            THEN format('has %s elements; the limits are 1 and 20', jsonb_array_length(required))
        WHEN jsonb_typeof(e.value) <> 'object' THEN format('contains %s', left(e.value::text, 80))
        WHEN e.value - ARRAY['job', 'scope', 'root'] <> '{}' THEN format('has an unknown key in %s', left(e.value::text, 80))
        WHEN coalesce(jsonb_typeof(e.value -> 'job') <> 'string' OR length(e.value ->> 'job') NOT BETWEEN 1 AND 200, true)
            THEN format('has no job in %s', left(e.value::text, 80))
        WHEN e.value ->> 'scope' NOT IN ('same', 'global') THEN format('has scope = %s', left(e.value ->> 'scope', 80))
        WHEN e.value ->> 'job' = job THEN 'names the job itself'
        WHEN (SELECT count(*) FROM jsonb_array_elements(required) o WHERE o.value -> 'job' = e.value -> 'job') > 1
            THEN format('names %s twice', quote_literal(left(e.value ->> 'job', 80)))
    END INTO bad
    FROM jsonb_array_elements(required || CASE required WHEN '[]' THEN jsonb '[{}]' ELSE '[]' END) e ORDER BY 1 NULLS LAST LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: % %', job, field, bad
            USING HINT = 'Name other jobs, each once, such as [{"job": "extract", "scope": "same"}]. scope: same, or global.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN (SELECT jsonb_agg(jsonb_build_object('job', e.value -> 'job', 'scope', coalesce(e.value ->> 'scope', 'same'))
                             ORDER BY e.n)
            FROM jsonb_array_elements(required) WITH ORDINALITY e(value, n));
END $$;
COMMENT ON FUNCTION {schema}_internal.checked_requirements(text, text, jsonb) IS 'Returns requires or after in the form in which it is kept: each with job and scope, by default the same. Raises for another form.';

CREATE OR REPLACE FUNCTION {schema}_internal.requirement_problem(job {schema}.jobs) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    gate     record;
    upstream {schema}.jobs;
    seen     jsonb := '{}';
    names    text[] := '{}';
    trails   text[] := '{}';
    trail    text;
BEGIN
    FOR gate IN SELECT g.* FROM {schema}_internal.gates_of(job) g LOOP
        SELECT j.* INTO upstream FROM {schema}.jobs j WHERE j.name = gate.job_name FOR SHARE;
        trail := CASE
            WHEN NOT FOUND THEN 'does not exist'
            WHEN upstream.retired_at IS NOT NULL THEN 'is retired'
            WHEN upstream.schedule IS NULL AND upstream.after IS NULL THEN 'has no schedule, so it has no plan_times'
            WHEN {schema}_internal.is_reboot(upstream.schedule)
                THEN 'runs when a host boots, so it has no plan_times to wait for'
            WHEN gate.scope = 'global' AND upstream.scope_kind <> 'global'
                THEN format('has scopes of the kind %s, so it has no scope global', upstream.scope_kind)
            WHEN gate.scope = 'same' AND upstream.scope_kind <> job.scope_kind
                THEN format('has scopes of the kind %s, and this job of the kind %s', upstream.scope_kind, job.scope_kind) END;
        IF trail IS NOT NULL THEN
            RETURN format('%s: job %s %s', gate.field, quote_literal(gate.job_name), trail);
        END IF;
        names := names || gate.job_name;
        seen := seen || jsonb_build_object(gate.job_name, true);
        trails := trails || format('%s, which requires %s', job.name, gate.job_name);
    END LOOP;
    WHILE cardinality(names) > 0 LOOP
        upstream := NULL;
        SELECT j.* INTO upstream FROM {schema}.jobs j WHERE j.name = names[1] FOR SHARE;
        trail := trails[1];
        names := names[2:];
        trails := trails[2:];
        FOR gate IN SELECT g.* FROM {schema}_internal.gates_of(upstream) g LOOP
            IF gate.job_name = job.name THEN
                RETURN format('%s: a cycle: %s, which requires %s',
                    CASE WHEN job.after IS NULL THEN 'requires' ELSE 'after' END, trail, job.name);
            ELSIF NOT seen ? gate.job_name THEN
                names := names || gate.job_name;
                seen := seen || jsonb_build_object(gate.job_name, true);
                trails := trails || format('%s, which requires %s', trail, gate.job_name);
            END IF;
        END LOOP;
    END LOOP;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.requirement_problem({schema}.jobs) IS 'Returns why a job cannot wait for what it requires, such as a cycle; NULL: it can. Locks its upstreams, also the indirect ones.';

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_follow_upstreams() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    upstream {schema}.jobs;
    root     jsonb;
BEGIN
    -- An INSERT of a job that exists becomes an UPDATE, which fires the trigger again.
    IF (NEW.after IS NULL AND NEW.requires IS NULL)
       OR (TG_OP = 'INSERT' AND EXISTS (SELECT FROM {schema}.jobs j WHERE j.name = NEW.name)) THEN
        NEW.gate_problem := NULL;
        RETURN NEW;
    END IF;
    NEW.after := {schema}_internal.checked_requirements(NEW.name, 'after', NEW.after);
    NEW.requires := {schema}_internal.checked_requirements(NEW.name, 'requires', NEW.requires);
    IF NEW.after IS NOT NULL AND NEW.schedule IS NOT NULL AND NEW.schedule IS DISTINCT FROM OLD.schedule
       AND NEW.schedule IS DISTINCT FROM (SELECT j.schedule FROM {schema}.jobs j WHERE j.name = NEW.after -> 0 ->> 'job') THEN
        RAISE EXCEPTION 'job %: schedule and after are both set', NEW.name
            USING HINT = 'A job with after has the schedule of the job that after names. Set schedule to NULL, or use requires.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    IF TG_OP = 'UPDATE' AND (NEW.after, NEW.requires, NEW.scope_kind, NEW.retired_at IS NULL, NEW.gate_problem)
       IS NOT DISTINCT FROM (OLD.after #- '{0,root}', OLD.requires, OLD.scope_kind, OLD.retired_at IS NULL, OLD.gate_problem) THEN
        IF NEW.after IS NOT NULL THEN
            NEW := jsonb_populate_record(NEW, {schema}_internal.job_timing(OLD));
            NEW.after := OLD.after;
        END IF;
        RETURN NEW;
    END IF;
    NEW.gate_problem := {schema}_internal.requirement_problem(NEW);
    IF NEW.after IS NOT NULL THEN
        SELECT j.* INTO upstream FROM {schema}.jobs j WHERE j.name = NEW.after -> 0 ->> 'job' FOR SHARE;
        -- Without it, the job keeps what it has, and is not planned.
        NEW := jsonb_populate_record(NEW, {schema}_internal.job_timing(
            CASE WHEN FOUND THEN upstream WHEN TG_OP = 'UPDATE' THEN OLD ELSE NEW END));
        IF upstream.after IS NOT NULL THEN
            root := coalesce(upstream.after -> 0 -> 'root', upstream.after -> 0);
            IF NEW.after -> 0 ->> 'scope' = 'global' THEN
                root := jsonb_set(root, '{scope}', '"global"');
            END IF;
            NEW.after := jsonb_set(NEW.after, '{0,root}', root);
        END IF;
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_follow_upstreams() IS 'Runs before a write to jobs. Checks requires and after, copies the columns that decide plan_times from the job that after names, and sets gate_problem.';

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_touch_dependents() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad       text;
    dependent text;
BEGIN
    -- The rest of the statement may have added the upstream, so the problem is looked for again. A job that returns
    -- with the problem that it had keeps it, as a spec_error: accept_database retires each job, which then returns.
    IF TG_OP <> 'DELETE' AND NEW.gate_problem IS NOT NULL AND NEW.retired_at IS NULL AND (
           TG_OP = 'INSERT' OR OLD.retired_at IS NOT NULL AND OLD.gate_problem IS NULL
           OR (NEW.requires, NEW.after #- '{0,root}', NEW.scope_kind)
               IS DISTINCT FROM (OLD.requires, OLD.after #- '{0,root}', OLD.scope_kind)) THEN
        bad := (SELECT {schema}_internal.requirement_problem(j) FROM {schema}.jobs j WHERE j.name = NEW.name);
        IF bad IS NOT NULL THEN
            RAISE EXCEPTION 'job %: %', NEW.name, bad
                USING HINT = 'Name a job of the ledger that has a schedule, with scope = global if it has no scopes and this job has. A chain of jobs must not lead back to its beginning.',
                      ERRCODE = 'foreign_key_violation';
        END IF;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.revision = OLD.revision THEN
        RETURN NULL;
    END IF;
    FOR dependent IN SELECT d.name FROM {schema}_internal.dependents_of(coalesce(NEW.name, OLD.name)) d(name) LOOP
        -- Inside the loop, because most jobs have no dependents.
        EXIT WHEN TG_OP = 'UPDATE' AND (NEW.after, NEW.scope_kind, NEW.retired_at IS NULL, {schema}_internal.job_timing(NEW))
            IS NOT DISTINCT FROM (OLD.after, OLD.scope_kind, OLD.retired_at IS NULL, {schema}_internal.job_timing(OLD));
        -- The trigger of the dependent replaces the mark.
        UPDATE {schema}.jobs j SET gate_problem = chr(1), edited_by = coalesce(NEW.edited_by, session_user)
        WHERE j.name = dependent;
    END LOOP;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_touch_dependents() IS 'Runs after a write to jobs. Refuses a job that requires what it cannot have, and touches the jobs that name a job whose plan_times, scopes or retirement changed.';
