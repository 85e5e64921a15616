-- Operator function: rename a source, whose file or App has moved.
-- Lock order: the two rows of sources, then the jobs by name, then the calendars by name, then the channels.

CREATE OR REPLACE FUNCTION {schema}.rename_source(old text, new text, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began boolean;
    moved bigint;
BEGIN
    IF new IS NULL OR new !~ '[^[:space:]]' OR new = old THEN
        RAISE EXCEPTION 'source %: the new name % is empty or the same', old, quote_nullable(new)
            USING HINT = 'Give the name under which the source is applied from now on.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Like an apply, so that a source is not renamed while it is applied, or created twice.
    INSERT INTO {schema}.sources (name) VALUES (new) ON CONFLICT (name) DO NOTHING;
    PERFORM FROM {schema}.sources s WHERE s.name IN (old, new) ORDER BY s.name FOR UPDATE;
    LOCK TABLE {schema}.jobs IN ROW EXCLUSIVE MODE;  -- as in lock_job
    PERFORM FROM {schema}.jobs j WHERE j.source IN (old, new) ORDER BY j.name FOR NO KEY UPDATE;
    IF NOT EXISTS (SELECT FROM {schema}.sources s WHERE s.name = old) THEN
        RAISE EXCEPTION 'source % does not exist', old
            USING HINT = 'To list the sources, run SELECT * FROM {schema}.source_status.', ERRCODE = 'no_data_found';
    ELSIF EXISTS (SELECT FROM {schema}.jobs j WHERE j.source = new AND j.retired_at IS NULL)
            OR EXISTS (SELECT FROM {schema}.channels c WHERE c.source = new) THEN
        RAISE EXCEPTION 'source % has jobs or channels, so % cannot get its name', new, old
            USING HINT = 'Remove these first, or keep both sources.', ERRCODE = 'unique_violation';
    END IF;
    began := {schema}_internal.begin_action();
    UPDATE {schema}.jobs j SET source = new WHERE j.source = old;
    GET DIAGNOSTICS moved = ROW_COUNT;
    PERFORM FROM {schema}.calendars c WHERE c.source = old ORDER BY c.name FOR NO KEY UPDATE;
    UPDATE {schema}.calendars c SET source = new WHERE c.source = old;
    PERFORM {schema}_internal.end_action(began);
    UPDATE {schema}.channels c SET source = new WHERE c.source = old;
    DELETE FROM {schema}.sources s WHERE s.name = new;
    UPDATE {schema}.sources s SET name = new WHERE s.name = old;
    PERFORM {schema}_internal.record_action('rename_source', 'source', old, requested_by, 'done',
        arguments => jsonb_build_object('new', new, 'jobs', moved));
    RETURN moved;
END $$;
COMMENT ON FUNCTION {schema}.rename_source(text, text, text) IS 'Gives a source another name, after its file or App has moved: its jobs, its calendars, its channels and its last deploy stay, and the next apply under the new name continues. Raises if jobs or channels belong to the new name. Returns the number of jobs, including retired ones.';
