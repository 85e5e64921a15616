CREATE OR REPLACE FUNCTION {schema}.retry_delivery(delivery bigint, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held {schema}.deliveries;
BEGIN
    SELECT d.* INTO held FROM {schema}.deliveries d WHERE d.id = delivery FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'delivery % does not exist', delivery
            USING HINT = 'To list the deliveries, run SELECT * FROM {schema}.delivery_status.', ERRCODE = 'no_data_found';
    ELSIF held.status NOT IN ('FAILED', 'PENDING') OR held.requested_by IS NOT NULL THEN
        RAISE EXCEPTION 'delivery %: it is %, and % can be sent again', delivery,
                CASE WHEN held.requested_by IS NULL THEN held.status ELSE 'a test' END, 'only a FAILED delivery of alerts'
            USING HINT = 'Send a test with {schema}.test_channel.', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    UPDATE {schema}.deliveries d SET status = 'PENDING', due_at = {schema}.db_clock(), attempt = 0
    WHERE d.id = delivery AND held.status = 'FAILED';
    PERFORM {schema}_internal.record_action('retry_delivery', 'delivery', delivery::text, requested_by,
        CASE held.status WHEN 'FAILED' THEN 'done' ELSE 'unchanged' END,
        arguments => jsonb_build_object('channel', held.channel));
    PERFORM pg_notify('{schema}', 'alerts');
    RETURN held.status = 'FAILED';
END $$;
COMMENT ON FUNCTION {schema}.retry_delivery(bigint, text) IS 'Sends a FAILED delivery of alerts again, with all of its attempts. Returns false if it is PENDING already. Raises if it is a test, RUNNING or SUCCESS.';
