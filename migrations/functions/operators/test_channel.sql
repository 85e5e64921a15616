CREATE OR REPLACE FUNCTION {schema}.test_channel(
    channel text, patience interval DEFAULT '1 minute', requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held {schema}.channels;
    made bigint;
BEGIN
    SELECT c.* INTO held FROM {schema}.channels c WHERE c.name = channel;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_channel(channel);
    ELSIF held.paused_at IS NOT NULL THEN
        RAISE EXCEPTION 'channel %: it has been paused since %', channel, {schema}_internal.utc_text(held.paused_at)
            USING HINT = 'Resume it with {schema}.resume_channel first.', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO {schema}.deliveries AS d (channel, max_attempts, requested_by, expires_at)
    VALUES (test_channel.channel, 1, coalesce(test_channel.requested_by, session_user), {schema}.db_clock() + patience)
    RETURNING d.id INTO made;
    PERFORM {schema}_internal.record_action('test_channel', 'channel', channel, requested_by, 'done',
        arguments => jsonb_build_object('delivery', made));
    PERFORM pg_notify('{schema}', 'alerts');
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}.test_channel(text, interval, text) IS 'Creates a delivery with a test message, and returns its id; see delivery_status. It is not retried, and it is not sent if no replica claims it within patience. Raises if the channel is unknown or paused.';
