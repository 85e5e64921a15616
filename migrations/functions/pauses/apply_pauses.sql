-- The columns paused_* of a job state the union of its pauses in force. Each write to jobs computes them again, so a job
-- that is added or edited during a pause that selects it is paused with that edit.
-- Lock order: the job, then pauses. No transaction that has locked a pause waits for a job.

CREATE OR REPLACE FUNCTION {schema}_internal.record_job_pause(before {schema}.jobs, job {schema}.jobs, editor text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    at timestamptz := {schema}.db_clock();
BEGIN
    IF job.paused_at IS NULL THEN
        UPDATE {schema}.pauses p SET ended_at = least(p.until_at, at), ended_by = editor
        WHERE p.job_name = job.name AND NOT {schema}_internal.is_wide(p) AND p.begun_at IS NOT NULL AND p.ended_at IS NULL;
        RETURN;
    END IF;
    UPDATE {schema}.pauses p
    SET until_at = job.paused_until, reason = job.paused_reason, requested_by = coalesce(job.paused_by, editor)
    WHERE p.job_name = job.name AND NOT {schema}_internal.is_wide(p) AND p.begun_at IS NOT NULL AND p.ended_at IS NULL
      AND coalesce(p.until_at > at, true);
    IF NOT FOUND THEN
        INSERT INTO {schema}.pauses (job_name, from_at, until_at, reason, requested_by, created_at, begun_at)
        VALUES (job.name,
                least(CASE WHEN job.paused_at IS DISTINCT FROM before.paused_at THEN job.paused_at END, at),
                job.paused_until, job.paused_reason, coalesce(job.paused_by, editor), at, at);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.record_job_pause({schema}.jobs, {schema}.jobs, text) IS 'Records that a statement has paused or resumed one job: the row of its pause begins, changes or ends.';

CREATE OR REPLACE FUNCTION {schema}_internal.apply_pauses(before {schema}.jobs, job {schema}.jobs, editor text)
RETURNS {schema}.jobs LANGUAGE plpgsql AS $$
DECLARE
    held    record;
    written boolean := (job.paused_at, job.paused_by, job.paused_reason, job.paused_until)
        IS DISTINCT FROM (before.paused_at, before.paused_by, before.paused_reason, before.paused_until);
    at      timestamptz := (SELECT u.at FROM {schema}.unsettled_pauses u
                         WHERE u.job_name = job.name AND u.xact = pg_current_xact_id());
BEGIN
    IF job.retired_at IS NOT NULL THEN
        RETURN job;
    END IF;
    IF at IS NULL AND written THEN
        PERFORM {schema}_internal.record_job_pause(before, job, editor);
    END IF;
    SELECT p.* INTO held FROM {schema}_internal.pause_in_force(job, coalesce(at, {schema}.db_clock())) p;
    IF held.paused_at IS NULL AND job.paused_until <= {schema}.db_clock() AND NOT written AND at IS NULL THEN
        RETURN job;  -- resume_paused states the end, in a revision that takes effect at paused_until
    END IF;
    -- Since the first of the pauses that joined, so that the end of one holds nothing that was forced during it.
    IF held.paused_at IS NOT NULL AND before.retired_at IS NULL AND coalesce(before.paused_until > held.paused_at, true) THEN
        held.paused_at := least(held.paused_at, before.paused_at);
    END IF;
    job.paused_at := held.paused_at;
    job.paused_by := held.paused_by;
    job.paused_reason := held.paused_reason;
    job.paused_until := held.paused_until;
    RETURN job;
END $$;
COMMENT ON FUNCTION {schema}_internal.apply_pauses({schema}.jobs, {schema}.jobs, text) IS 'Returns a row of jobs, which is being written, with the columns that state its pauses. settle_pauses has chosen the instant; otherwise it is now.';

-- FOR SHARE: a pause that begins or ends at the same time waits for this COMMIT, and then finds the edited job.
CREATE OR REPLACE FUNCTION {schema}_internal.compare_pauses(job text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    at      timestamptz := {schema}.db_clock();
    edited  {schema}.jobs;
    present record;
BEGIN
    SELECT j.* INTO edited FROM {schema}.jobs j WHERE j.name = job AND j.retired_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM {schema}.pauses p
    WHERE p.ended_at IS NULL AND coalesce(p.until_at > at, true) AND {schema}_internal.pause_covers(p, edited)
    ORDER BY p.id FOR SHARE;
    SELECT p.* INTO present FROM {schema}_internal.pause_in_force(edited, at) p;
    IF (present.paused_at IS NULL, present.paused_until) IS DISTINCT FROM
       (edited.paused_at IS NULL OR edited.paused_until <= at IS TRUE,
        CASE WHEN edited.paused_until > at THEN edited.paused_until END) THEN
        INSERT INTO {schema}.unsettled_pauses (job_name, at, begins, requested_by) VALUES (job, at, false, edited.edited_by);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.compare_pauses(text) IS 'Compares the pause that a row of jobs states with the pauses that are in force now, and notes the job for settle_pauses if they differ. Called at the COMMIT of an edit, because a pause may have begun or ended since the edit was written, and after settle_pauses has applied the instants that it knew.';
