CREATE OR REPLACE FUNCTION {schema}_internal.check_window(job text, kind text, scope text, plan_time timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    processed timestamptz := {schema}_internal.next_window(job, kind, scope);
BEGIN
    IF plan_time <= processed THEN
        RAISE EXCEPTION 'job %: the windows of %/% are processed up to %, and plan_time % is not later',
                job, kind, scope, processed, plan_time
            USING HINT = format('A job with windows processes nothing twice. Choose plan_times after %s, or process that time with a job without windows.',
                                processed),
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_window(text, text, text, timestamptz) IS 'Raises if an execution of this plan_time would have an empty window, because a SUCCESS has processed it. The caller holds the lock of the schedule.';
