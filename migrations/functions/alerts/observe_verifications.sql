CREATE OR REPLACE FUNCTION {schema}_internal.observe_verifications(from_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found record;
    open  jsonb;
BEGIN
    FOR found IN
        WITH observed AS (
            UPDATE {schema}.verification_runs v SET observed = true
            WHERE NOT v.observed AND v.finished_at IS NOT NULL
            RETURNING v.*
        )
        SELECT o.*, c.channel FROM observed o
        CROSS JOIN unnest({schema}_internal.ledger_channels('violation')) c(channel)
        WHERE o.outcome = 'finished' AND o.finished_at >= from_at ORDER BY o.finished_at, o.id, c.channel
    LOOP
        SELECT t.details INTO open FROM {schema}.tracked_states t
        WHERE (t.job_name, t.event, t.channel) = ('', 'violation', found.channel) AND t.count > 0;
        IF found.violations > 0 THEN
            -- The state covers what all runs with violations had checked. NULL is all jobs, or the beginning.
            PERFORM {schema}_internal.observe_event(
                ROW(found.channel, 'violation', '', '', '', '', 1, NULL, NULL, NULL, NULL, NULL,
                    format('verify found %s violations%s', found.violations, ' of ' || found.job_name),
                    jsonb_build_object('verification', found.id, 'violations', found.violations, 'kinds', found.kinds,
                        'job', CASE WHEN open IS NULL OR open ->> 'job' = found.job_name THEN found.job_name END,
                        'checked_after', CASE WHEN open IS NULL THEN found.checked_after
                            WHEN found.checked_after > (open ->> 'checked_after')::timestamptz
                            THEN (open ->> 'checked_after')::timestamptz
                            WHEN open ->> 'checked_after' IS NOT NULL THEN found.checked_after END,
                        'checked_through', greatest(found.checked_through,
                            (open ->> 'checked_through')::timestamptz)))::{schema}.tracked_states, 1, true, true, false);
        ELSE
            -- Only a run that has checked again what the run with violations had checked.
            PERFORM {schema}_internal.observe_event(
                ROW(t.channel, 'violation', '', '', '', '', 0, NULL, NULL, NULL, NULL, NULL,
                    'verify found no violations', jsonb_build_object('verification', found.id))::{schema}.tracked_states,
                1, true, true, false)
            FROM {schema}.tracked_states t
            WHERE t.event = 'violation' AND t.channel = found.channel
              AND coalesce(found.job_name = t.details ->> 'job', found.job_name IS NULL)
              AND coalesce(found.checked_after <= (t.details ->> 'checked_after')::timestamptz, found.checked_after IS NULL)
              AND coalesce(found.checked_through >= (t.details ->> 'checked_through')::timestamptz, true);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_verifications(timestamptz) IS 'Observes the runs of verify that have ended since the last call, at or after this instant. The state is open until a later run has checked the same range, of the same job or of all jobs, and found no violation.';
