CREATE OR REPLACE FUNCTION {schema}_internal.raise_unknown_channel(channel text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'channel ''%'' does not exist', channel
        USING HINT = 'To list the channels, run SELECT name FROM {schema}.channel_status.', ERRCODE = 'no_data_found';
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_unknown_channel(text) IS 'Raises that this channel does not exist.';

CREATE OR REPLACE FUNCTION {schema}.pause_channel(channel text, requested_by text DEFAULT NULL)
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
    UPDATE {schema}.channels c SET paused_at = {schema}.db_clock() WHERE c.name = channel AND held.paused_at IS NULL;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('pause_channel', 'channel', channel, requested_by,
        CASE WHEN held.paused_at IS NULL THEN 'done' ELSE 'unchanged' END);
    RETURN held.paused_at IS NULL;
END $$;
COMMENT ON FUNCTION {schema}.pause_channel(text, text) IS 'Pauses a channel until it is resumed: its alerts and deliveries wait. A delivery that is RUNNING ends. Returns false if the channel was paused already.';
