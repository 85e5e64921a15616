CREATE OR REPLACE FUNCTION {schema}_internal.check_name(what text, name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF {schema}_internal.name_problem(name) IS NOT NULL THEN
        RAISE EXCEPTION '% % %', what, quote_literal(left(name, 80)), {schema}_internal.name_problem(name)
            USING HINT = 'Remove these characters, because people could not tell this name from another one.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_name(text, text) IS 'Raises if this cannot be a new name of a job or queue, or a new kind or id of a scope.';

-- A queue that a job already has can still be paused and limited.
CREATE OR REPLACE FUNCTION {schema}_internal.check_new_name() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_TABLE_NAME = 'schedules' THEN
        PERFORM {schema}_internal.check_name(format('job %s: scope_id', NEW.job_name), NEW.scope_id);
    ELSIF NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.queue = NEW.name) THEN
        PERFORM {schema}_internal.check_name('queue', NEW.name);
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_new_name() IS 'Runs before a row with a questionable name is added to schedules or queues. Refuses the id of the scope, or the name of the queue.';
