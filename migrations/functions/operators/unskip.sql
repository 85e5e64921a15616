CREATE OR REPLACE FUNCTION {schema}.unskip(skip_id bigint, requested_by text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester text := coalesce(requested_by, session_user);
    held      {schema}.planned_skips;
    reached   timestamptz;
    outcome   text := 'unchanged';
BEGIN
    SELECT p.* INTO held FROM {schema}.planned_skips p WHERE p.id = skip_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'planned skip % does not exist', skip_id
            USING HINT = 'It may have been pruned after retention. To list planned skips, run SELECT * FROM {schema}.planned_skip_status.',
                  ERRCODE = 'no_data_found';
    END IF;
    PERFORM FROM {schema}.jobs j WHERE j.name = held.job_name FOR NO KEY UPDATE;
    reached := {schema}_internal.lock_schedules(held.job_name, held.scope_kind, held.scope_id);
    SELECT p.* INTO held FROM {schema}.planned_skips p WHERE p.id = skip_id FOR NO KEY UPDATE;
    IF held.withdrawn_at IS NULL THEN
        IF reached >= held.covered_through THEN
            RAISE EXCEPTION 'planned skip %: its plan_times are already reached; planning of job % has come to %',
                    skip_id, held.job_name, {schema}_internal.utc_text(reached)
                USING HINT = 'Run a skipped plan_time with {schema}.backfill.',
                      ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        outcome := CASE WHEN reached >= held.from_plan_time THEN 'shortened' ELSE 'withdrawn' END;
        UPDATE {schema}.planned_skips p
        SET withdrawn_at = {schema}.db_clock(), withdrawn_by = requester,
            withdrawn_after = greatest(reached, held.from_plan_time - interval '1 microsecond')
        WHERE p.id = skip_id;
        PERFORM {schema}_internal.wake_schedules(held.job_name, held.scope_kind, held.scope_id);
    END IF;
    PERFORM {schema}_internal.record_action('unskip', 'job', held.job_name, requester, outcome, held.job_name,
        arguments => jsonb_build_object('skip_id', skip_id));
    RETURN outcome;
END $$;
COMMENT ON FUNCTION {schema}.unskip(bigint, text) IS 'Withdraws a planned skip. Returns withdrawn; shortened, if planning has reached some of its plan_times, which stay skipped; or unchanged, if it was withdrawn already. Raises if planning has reached all of its plan_times. Waits for the locks of the job and of its schedules (lock_timeout).';
