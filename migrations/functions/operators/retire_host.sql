-- Lock: the row of the host, waiting; then those of follow_hosts. If another process follows hosts now, the next one
-- retires the scopes.
CREATE OR REPLACE FUNCTION {schema}.retire_host(host text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began boolean := {schema}_internal.begin_action();
    held  {schema}.hosts;
BEGIN
    SELECT h.* INTO held FROM {schema}.hosts h WHERE h.name = host FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'host %: no replica has run on it, and no job lists it', host
            USING HINT = 'To list the hosts, run SELECT name FROM {schema}.host_status.', ERRCODE = 'no_data_found';
    ELSIF held.present_through >= {schema}.db_clock() THEN
        RAISE EXCEPTION 'host %: one of its replicas has checked in, and counts as live until %', host,
                {schema}_internal.utc_text(held.present_through)
            USING HINT = 'Stop its replicas, and try again after that time: a check-in brings a retired host back.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF held.retired_at IS NULL THEN
        UPDATE {schema}.hosts h
        SET retired_at = {schema}.db_clock(), retired_by = coalesce(retire_host.requested_by, session_user)
        WHERE h.name = host;
        PERFORM {schema}_internal.follow_hosts('36525 days');
    END IF;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('retire_host', 'host', host, requested_by,
        CASE WHEN held.retired_at IS NULL THEN 'done' ELSE 'unchanged' END);
    RETURN held.retired_at IS NULL;
END $$;
COMMENT ON FUNCTION {schema}.retire_host(text, text) IS 'Retires a host that is gone, so that jobs with every no longer run on it. Its next check-in brings it back. Jobs that list the host are edited instead. Returns false if it was retired already. Raises while a replica of the host is live.';
