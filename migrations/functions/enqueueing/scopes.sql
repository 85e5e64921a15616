CREATE OR REPLACE FUNCTION {schema}_internal.lock_or_create_scope(job text, kind text, scope text)
RETURNS {schema}.schedules LANGUAGE plpgsql AS $$
DECLARE
    held       {schema}.schedules;
    definition {schema}.jobs;
    at         timestamptz;
BEGIN
    IF scope IS NULL OR length(scope) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'job %: scope_id % is not a text of 1 to 200 characters', job,
                coalesce(quote_literal(left(scope, 40)), 'NULL')
            USING HINT = 'Leave it out for a job of one scope.', ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT s.* INTO held FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope) FOR NO KEY UPDATE;
    IF FOUND THEN
        RETURN held;
    END IF;
    -- SHARE: an edit that is under way would not give the new row its queue.
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = job FOR SHARE;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    ELSIF definition.scope_kind = 'global' OR definition.scopes IS NOT NULL OR scope = 'global' OR kind = 'host'
          OR kind <> definition.scope_kind OR definition.retired_at IS NOT NULL THEN
        PERFORM {schema}_internal.raise_unknown_scope(job, kind, scope);
    END IF;
    at := {schema}.db_clock();
    INSERT INTO {schema}.schedules
        (job_name, scope_kind, scope_id, queue, planned_through, planned_revision, next_due_at,
         woken, created_at)
    VALUES (job, kind, scope, definition.queue, at, definition.revision, at, true, at);
    IF FOUND THEN
        PERFORM {schema}_internal.date_at_commit(
            job, at, kinds => ARRAY[kind], scopes => ARRAY[scope], changes => ARRAY['appears']);
    END IF;
    SELECT s.* INTO held FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope) FOR NO KEY UPDATE;
    PERFORM pg_notify('{schema}', 'jobs');
    RETURN held;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_or_create_scope(text, text, text) IS 'Locks and returns the schedule row of a scope. A missing scope is created, with a history that starts now, if the job has a scope_kind other than host and no fixed scopes; otherwise it raises. A scope provider retires the scopes that it does not return.';

CREATE OR REPLACE FUNCTION {schema}_internal.find_or_create_scope(job text, kind text, scope text)
RETURNS {schema}.schedules LANGUAGE plpgsql AS $$
DECLARE
    known {schema}.schedules;
BEGIN
    SELECT s.* INTO known FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope);
    IF NOT FOUND THEN
        known := {schema}_internal.lock_or_create_scope(job, kind, scope);
    END IF;
    RETURN known;
END $$;
COMMENT ON FUNCTION {schema}_internal.find_or_create_scope(text, text, text) IS 'Returns the schedule row of a scope without a lock. Creates a missing scope as lock_or_create_scope does.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_scopes(job text, kind text, wanted text[])
RETURNS SETOF {schema}.schedules LANGUAGE plpgsql AS $$
DECLARE
    scope text;
BEGIN
    IF cardinality(wanted) > 1 AND NOT EXISTS (
            SELECT FROM unnest(wanted) u(id) WHERE NOT EXISTS (
                SELECT FROM {schema}.schedules s
                WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, u.id))) THEN
        RETURN QUERY
            SELECT s.* FROM unnest(wanted) u(id)
            JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (job, kind, u.id)
            ORDER BY s.scope_id FOR NO KEY UPDATE OF s;
        RETURN;
    END IF;
    -- Jobs come before schedules in the lock order.
    PERFORM FROM {schema}.jobs j WHERE j.name = job FOR SHARE;
    -- One by one, so that a new row is locked in its place in the key order, too.
    FOREACH scope IN ARRAY wanted LOOP
        RETURN NEXT {schema}_internal.lock_or_create_scope(job, kind, scope);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_scopes(text, text, text[]) IS 'Locks the schedule rows of these scopes, given once each and in key order, and returns them in that order. Creates a missing scope as lock_or_create_scope does.';
