-- Records an edit by SQL or by apply: its revision, and the names of the changed fields. It does not record the end of
-- a pause at paused_until or a new spec_error, because a replica writes these and no operator does.
CREATE OR REPLACE FUNCTION {schema}_internal.jobs_record_edit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    silent CONSTANT text[] := ARRAY['revision', 'calendar_revision', 'gate_problem', 'edited_by', 'spec_error', 'deploy'];
    pause  CONSTANT text[] := ARRAY['paused_at', 'paused_by', 'paused_reason', 'paused_until'];
    before jsonb;
    after  jsonb;
    fields text[];
    verb   text := 'edit';
    editor text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM {schema}_internal.record_action('delete', 'job', OLD.name, NULL, 'done', OLD.name,
            (SELECT max(r.revision) FROM {schema}.job_revisions r WHERE r.job_name = OLD.name));
        RETURN NULL;
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM {schema}_internal.record_action('add', 'job', NEW.name, NEW.edited_by, 'done', NEW.name,
            NEW.revision, arguments => jsonb_build_object('source', NEW.source, 'deploy', NEW.deploy));
        RETURN NULL;
    END IF;
    before := to_jsonb(OLD) - silent;
    after := to_jsonb(NEW) - silent;
    IF before = after OR (
           NEW.paused_at IS NULL AND OLD.paused_until <= {schema}.db_clock()
           AND (NEW.retired_at IS NULL) = (OLD.retired_at IS NULL)
           AND {schema}_internal.job_definition(NEW) = {schema}_internal.job_definition(OLD)) THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(n.key ORDER BY n.key COLLATE "C") INTO fields
    FROM jsonb_each(after) n WHERE n.value IS DISTINCT FROM before -> n.key;
    IF (NEW.retired_at IS NULL) <> (OLD.retired_at IS NULL) THEN
        verb := CASE WHEN NEW.retired_at IS NULL THEN 'return' ELSE 'retire' END;
    ELSIF fields <@ pause THEN
        verb := CASE WHEN NEW.paused_at IS NULL THEN 'resume' ELSE 'pause' END;
    END IF;
    -- Without a revision, the row has the editor of the previous edit, unless this one names another.
    IF NEW.revision <> OLD.revision OR NEW.edited_by IS DISTINCT FROM OLD.edited_by THEN
        editor := NEW.edited_by;
    END IF;
    PERFORM {schema}_internal.record_action(verb, 'job', NEW.name, editor, 'done', NEW.name,
        CASE WHEN NEW.revision <> OLD.revision THEN NEW.revision END,
        arguments => jsonb_build_object('fields', fields, 'source', NEW.source, 'deploy', NEW.deploy),
        reason => CASE verb WHEN 'pause' THEN NEW.paused_reason END);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_record_edit() IS 'Runs after a write to jobs. Records the edit of each job in the audit trail, unless an operator function makes it.';

CREATE OR REPLACE FUNCTION {schema}_internal.queues_record_edit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before  jsonb := coalesce(to_jsonb(OLD), '{"max_running": null, "paused_at": null, "paused_by": null, "paused_reason": null}');
    fields  text[];
    verb    text := 'edit_queue';
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM {schema}_internal.record_action('delete_queue', 'queue', OLD.name, NULL, 'done');
        RETURN NULL;
    END IF;
    SELECT array_agg(n.key ORDER BY n.key COLLATE "C") INTO fields
    FROM jsonb_each(to_jsonb(NEW)) n WHERE n.value IS DISTINCT FROM before -> n.key AND n.key <> 'name';
    IF TG_OP = 'UPDATE' AND fields IS NULL AND NEW.name = OLD.name THEN
        RETURN NULL;
    ELSIF fields = ARRAY['max_running'] THEN
        verb := 'limit_queue';
    ELSIF fields <@ ARRAY['paused_at', 'paused_by', 'paused_reason'] THEN
        verb := CASE WHEN NEW.paused_at IS NULL THEN 'resume_queue' ELSE 'pause_queue' END;
    END IF;
    PERFORM {schema}_internal.record_action(verb, 'queue', NEW.name,
        CASE verb WHEN 'pause_queue' THEN NEW.paused_by END, 'done',
        arguments => jsonb_build_object('fields', fields, 'max_running', NEW.max_running),
        reason => CASE verb WHEN 'pause_queue' THEN NEW.paused_reason END);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.queues_record_edit() IS 'Runs after a write to queues. Records the edit of each queue in the audit trail, unless an operator function makes it.';

CREATE OR REPLACE FUNCTION {schema}_internal.channels_record_edit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    verb text := CASE
        WHEN TG_OP = 'DELETE' THEN 'delete_channel'
        WHEN TG_OP = 'INSERT' THEN 'add_channel'
        WHEN (NEW.name, NEW.settings, NEW.source) IS DISTINCT FROM (OLD.name, OLD.settings, OLD.source) THEN 'edit_channel'
        WHEN NEW.paused_at IS NOT DISTINCT FROM OLD.paused_at THEN NULL
        WHEN NEW.paused_at IS NULL THEN 'resume_channel' ELSE 'pause_channel' END;
BEGIN
    IF verb IS NOT NULL THEN
        PERFORM {schema}_internal.record_action(verb, 'channel', coalesce(NEW.name, OLD.name), NEW.edited_by, 'done',
            arguments => jsonb_build_object('source', coalesce(NEW.source, OLD.source)));
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.channels_record_edit() IS 'Runs after a write to channels. Records the edit of each channel in the audit trail, unless an operator function makes it.';

CREATE OR REPLACE FUNCTION {schema}_internal.sources_record_edit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}_internal.record_action('edit_source', 'source', NEW.name, NEW.applied_by, 'done',
        arguments => jsonb_build_object('host', NEW.host, 'host_before', OLD.host));
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.sources_record_edit() IS 'Runs when a source that belonged to one host belongs to another, or to none. Records it in the audit trail.';
