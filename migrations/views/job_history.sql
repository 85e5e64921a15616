-- job_revisions without targets and payloads, which may be secret.
CREATE OR REPLACE VIEW {schema}.job_history AS
SELECT r.job_name, r.revision, r.effective_from, r.state, r.paused_until,
       r.definition - ARRAY['target', 'payload', 'ping'] AS definition, r.requested_by,
       r.reason
FROM {schema}.job_revisions r;
COMMENT ON VIEW {schema}.job_history IS 'Edits, pauses, resumes and retirements of every job. Targets and payloads are left out.';
COMMENT ON COLUMN {schema}.job_history.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.job_history.revision IS 'Revision of the job from this change on.';
COMMENT ON COLUMN {schema}.job_history.effective_from IS 'plan_times after this instant belong to this revision, until the next one''s.';
COMMENT ON COLUMN {schema}.job_history.state IS 'State of the job from this change on: active, paused or retired.';
COMMENT ON COLUMN {schema}.job_history.paused_until IS 'With state paused: when the pause ends by itself.';
COMMENT ON COLUMN {schema}.job_history.definition IS 'The definition as it was, without target, payload and ping.';
COMMENT ON COLUMN {schema}.job_history.requested_by IS 'The person or program that requested it.';
COMMENT ON COLUMN {schema}.job_history.reason IS 'Reason that was given for the pause, or for the switch between schedulers.';
