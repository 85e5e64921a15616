CREATE OR REPLACE FUNCTION {schema}.resume_channel(channel text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held  {schema}.channels;
    began boolean;
BEGIN
    SELECT c.* INTO held FROM {schema}.channels c WHERE c.name = channel FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_channel(channel);
    END IF;
    began := {schema}_internal.begin_action();
    UPDATE {schema}.channels c SET paused_at = NULL WHERE c.name = channel AND held.paused_at IS NOT NULL;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('resume_channel', 'channel', channel, requested_by,
        CASE WHEN held.paused_at IS NOT NULL THEN 'done' ELSE 'unchanged' END);
    PERFORM pg_notify('{schema}', 'alerts');
    RETURN held.paused_at IS NOT NULL;
END $$;
COMMENT ON FUNCTION {schema}.resume_channel(text, text) IS 'Resumes a channel: its alerts and deliveries that have waited are sent. Returns false if the channel was not paused.';
