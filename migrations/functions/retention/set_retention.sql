-- Operator function: how long the ledger keeps executions. Lock: the row of retention, waiting. Steps of replicas read
-- it without a lock.

CREATE OR REPLACE FUNCTION {schema}.set_retention(keep interval, reason text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS interval LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before interval;
BEGIN
    IF keep IS NULL OR keep < interval '1 day' OR keep > interval '36525 days' THEN
        RAISE EXCEPTION 'retention %: it is not from 1 day to 36525 days', coalesce(keep::text, 'NULL')
            USING HINT = 'Give for example 90 days. A job can remove its payloads, results and outputs earlier: see keep_output.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT r.keep INTO before FROM {schema}.retention r FOR NO KEY UPDATE;
    UPDATE {schema}.retention r
    SET keep = set_retention.keep, set_at = {schema}.db_clock(), set_by = coalesce(requested_by, session_user);
    PERFORM {schema}_internal.record_action('set_retention', 'ledger', NULL, requested_by,
        CASE WHEN keep = before THEN 'unchanged' ELSE 'done' END,
        arguments => jsonb_build_object('keep', keep, 'before', before), reason => reason);
    RETURN before;
END $$;
COMMENT ON FUNCTION {schema}.set_retention(interval, text, text) IS 'Sets how long the ledger keeps executions, and with them skips, runners and alerts: from 1 day to 36525 days. Replicas drop older rows within an hour. Returns the previous retention.';
