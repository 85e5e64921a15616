CREATE OR REPLACE FUNCTION {schema}_internal.end_verification(
    run bigint, outcome text, error text, checked_after timestamptz, checked_through timestamptz,
    schedules bigint, plan_times bigint, executions bigint, skips bigint, behind bigint,
    violations bigint, accepted bigint, kinds jsonb)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    of_job    text;
    requester text;
BEGIN
    UPDATE {schema}.verification_runs AS r
    SET finished_at = {schema}.db_clock(), outcome = outcome, error = left(error, 4000),
        checked_after = checked_after, checked_through = checked_through, schedules = schedules,
        plan_times = plan_times, executions = executions, skips = skips, behind = behind,
        violations = violations, accepted = accepted, kinds = kinds
    WHERE r.id = run AND r.outcome IS NULL
    RETURNING r.job_name, r.requested_by INTO of_job, requester;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The result may close an alert, so the audit trail records who reported it.
    PERFORM {schema}_internal.record_action('verify', CASE WHEN of_job IS NULL THEN 'ledger' ELSE 'job' END, of_job,
        requester, 'done', of_job, arguments => jsonb_build_object(
            'verification', run, 'outcome', outcome, 'violations', violations, 'accepted', accepted));
    RETURN true;
END $$;
COMMENT ON FUNCTION {schema}_internal.end_verification(bigint, text, text, timestamptz, timestamptz, bigint, bigint, bigint, bigint, bigint, bigint, bigint, jsonb) IS 'Records the end of a run of verify: finished or interrupted, and its counts. Returns false, and changes nothing, if the run has ended already or is no longer kept.';
