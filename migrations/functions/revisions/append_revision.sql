-- Every write to jobs becomes a revision and wakes the schedules of the job.
-- Lock order: the job row (held by the write itself), then its schedules by key, then executions.
-- The triggers are SECURITY DEFINER, so that a role that may write jobs needs no right to write their history.

-- The row still contains the editor of the previous edit. Only a trigger ON UPDATE OF detects whether this
-- statement sets one.
CREATE OR REPLACE FUNCTION {schema}_internal.jobs_mark_editor() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.edited_by := chr(1) || NEW.edited_by;  -- jobs_number_revision removes the mark
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_mark_editor() IS 'Marks edited_by if the statement sets it. Runs before jobs_number_revision.';

-- extra_float_digits is pinned, so that no change of a number is lost in the comparison.
CREATE OR REPLACE FUNCTION {schema}_internal.jobs_number_revision() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    editor text;
BEGIN
    IF NEW.paused_until = 'infinity' THEN
        NEW.paused_until := NULL;
    END IF;
    IF NEW.paused_at IS NULL THEN
        NEW.paused_by := NULL; NEW.paused_reason := NULL; NEW.paused_until := NULL;
    END IF;
    IF NOT NEW.observed THEN
        NEW.adopted_at := NULL; NEW.returned_at := NULL;
    END IF;
    NEW.calendar_revision := {schema}_internal.use_calendar(NEW.name, NEW.calendar);
    IF TG_OP = 'INSERT' THEN
        NEW.revision := 1 + coalesce((SELECT max(r.revision) FROM {schema}.job_revisions r
                                      WHERE r.job_name = NEW.name), 0);
        NEW.spec_error := NULL;
        NEW.edited_by := coalesce(NEW.edited_by, session_user);
        RETURN {schema}_internal.apply_pauses(NULL, NEW, NEW.edited_by);
    END IF;
    IF NEW.name <> OLD.name THEN
        RAISE EXCEPTION 'job %: a job cannot be renamed', OLD.name
            USING HINT = 'Retire it and add a new one: its history keeps the old name.',
                  ERRCODE = 'restrict_violation';
    END IF;
    IF starts_with(NEW.edited_by, chr(1)) THEN
        editor := substr(NEW.edited_by, 2);
    END IF;
    NEW := {schema}_internal.apply_pauses(OLD, NEW, coalesce(editor, session_user));
    NEW.revision := OLD.revision;
    NEW.edited_by := coalesce(editor, OLD.edited_by);
    IF ({schema}_internal.job_policies(NEW) - 'description') IS DISTINCT FROM
       ({schema}_internal.job_policies(OLD) - 'description')
       OR (NEW.paused_at IS NULL) <> (OLD.paused_at IS NULL)
       OR NEW.paused_until IS DISTINCT FROM OLD.paused_until
       OR (NEW.retired_at IS NULL) <> (OLD.retired_at IS NULL) THEN
        NEW.revision := OLD.revision + 1;
        NEW.spec_error := NULL;
        NEW.edited_by := coalesce(editor, session_user);
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_number_revision() IS 'Runs before a write to jobs. Raises for a rename and an unknown calendar, takes the revision of the calendar, states the pauses, numbers the revision of the job, clears spec_error, and records the editor.';

-- The caller holds the locks of the schedules. What was chosen has a due_at that the cursor shows, unless the job has
-- a delay.
CREATE OR REPLACE FUNCTION {schema}_internal.nothing_planned_after(job {schema}.jobs, at timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT FROM {schema}.schedules s WHERE s.job_name = job.name AND s.planned_through > at)
       AND NOT EXISTS (SELECT FROM {schema}.undated u WHERE u.job_name = job.name)
       AND NOT EXISTS (SELECT FROM {schema}.deadline_cursors c
                       WHERE c.job_name = job.name AND coalesce(c.upto, c.through) > at)
       AND NOT (job.schedule_delay + job.jitter > interval '0' AND EXISTS (
           SELECT FROM {schema}.executions e
           WHERE e.job_name = job.name AND e.trigger = 'schedule' AND e.due_at > at
             AND e.plan_time > at - job.schedule_delay - job.jitter))
$$;
COMMENT ON FUNCTION {schema}_internal.nothing_planned_after({schema}.jobs, timestamptz) IS 'Returns whether nothing of this job that is due after this instant was planned, and no deadline of it computed, so that a pause may take effect then.';

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_append_revision() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at     timestamptz;
    last   timestamptz;
    begins timestamptz;
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.revision = OLD.revision THEN
        RETURN NULL;
    END IF;
    PERFORM FROM {schema}.schedules s WHERE s.job_name = NEW.name
    ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE;
    -- A provisional date. It is read after the wait for the locks, which may have been long, because what was
    -- planned meanwhile stays valid. The locks hold until the COMMIT, which sets the final date.
    at := {schema}.db_clock();
    SELECT max(r.effective_from) INTO last FROM {schema}.job_revisions r WHERE r.job_name = NEW.name;
    -- A state applies to what is due after effective_from, and a pause also to what is due at from_at.
    begins := (SELECT u.at - interval '1 microsecond' FROM {schema}.unsettled_pauses u
               WHERE u.job_name = NEW.name AND u.xact = pg_current_xact_id() AND u.begins);
    IF TG_OP = 'UPDATE' AND NEW.paused_at IS NULL AND OLD.paused_until <= at
       AND OLD.paused_until >= last AND NEW.retired_at IS NULL AND OLD.retired_at IS NULL
       AND {schema}_internal.job_definition(NEW) = {schema}_internal.job_definition(OLD)
       AND NOT EXISTS (SELECT FROM {schema}.undated u WHERE u.job_name = NEW.name) THEN
        -- The pause ended by itself at paused_until, even if that was noticed later. An edit never takes effect
        -- in the past, so plan_times that were planned under a revision in between stay with it.
        at := OLD.paused_until;
    ELSIF begins >= last AND {schema}_internal.nothing_planned_after(NEW, begins) THEN
        at := begins;
    ELSE
        at := greatest(at, last);
        INSERT INTO {schema}.undated (job_name, at, revision) VALUES (NEW.name, at, NEW.revision);
    END IF;
    INSERT INTO {schema}.job_revisions
        (job_name, revision, effective_from, state, paused_until, definition, requested_by, reason)
    VALUES (NEW.name, NEW.revision, at,
            CASE WHEN NEW.retired_at IS NOT NULL THEN 'retired'
                 WHEN NEW.paused_at IS NOT NULL THEN 'paused' ELSE 'active' END,
            NEW.paused_until, {schema}_internal.job_definition(NEW), NEW.edited_by, NEW.paused_reason);
    IF NEW.retired_at IS NOT NULL THEN
        PERFORM {schema}_internal.cancel_waiting(NEW.name, NEW.edited_by);
    ELSIF NEW.scope_kind = 'global' THEN
        PERFORM {schema}_internal.set_scopes(NEW.name, 'global', ARRAY['global'], at);
    ELSIF NEW.every IS NOT NULL THEN
        PERFORM {schema}_internal.set_scopes(NEW.name, 'host', {schema}_internal.hosts_with(NEW.every), at);
    ELSIF NEW.scopes IS NOT NULL THEN
        PERFORM {schema}_internal.set_scopes(NEW.name, NEW.scope_kind, NEW.scopes, at);
    ELSE
        PERFORM {schema}_internal.retire_other_kinds(NEW.name, NEW.scope_kind, at);
    END IF;
    UPDATE {schema}.schedules s
    SET queue = NEW.queue, parked = NULL, next_due_at = least(s.next_due_at, at), woken = true
    WHERE s.job_name = NEW.name AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL);
    PERFORM pg_notify('{schema}', 'jobs');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_append_revision() IS 'Runs after a write to jobs. Locks the schedules of the job, appends its revision, sets its scopes, and wakes its schedules.';

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_record_deletion() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz;
BEGIN
    -- Before the locks of the schedules, as report_by_token. A job of the same name later is another one.
    UPDATE {schema}.report_tokens t SET revoked_at = {schema}.db_clock(), revoked_by = session_user
    WHERE t.job_name = OLD.name AND t.revoked_at IS NULL;
    PERFORM FROM {schema}.schedules s WHERE s.job_name = OLD.name
    ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE;
    at := {schema}.db_clock();
    INSERT INTO {schema}.job_revisions
        (job_name, revision, effective_from, state, definition, requested_by)
    SELECT OLD.name, OLD.revision + 1, greatest(at, max(r.effective_from)), 'retired',
           {schema}_internal.job_definition(OLD), session_user
    FROM {schema}.job_revisions r WHERE r.job_name = OLD.name;
    INSERT INTO {schema}.undated (job_name, at, revision) VALUES (OLD.name, at, OLD.revision + 1);
    PERFORM {schema}_internal.cancel_waiting(OLD.name, session_user);
    UPDATE {schema}.pauses p SET ended_at = least(p.until_at, at), ended_by = session_user
    WHERE p.job_name = OLD.name AND NOT {schema}_internal.is_wide(p) AND p.ended_at IS NULL;
    DELETE FROM {schema}.scope_providers p WHERE p.job_name = OLD.name;
    -- A provider that is being called now keeps its row: its transaction waits for this job.
    DELETE FROM {schema}.turns t WHERE t.step = (
        SELECT n.step FROM {schema}.turns n WHERE n.step = 'scopes of ' || OLD.name FOR UPDATE SKIP LOCKED);
    UPDATE {schema}.schedules SET parked = NULL, next_due_at = least(next_due_at, at), woken = true
    WHERE job_name = OLD.name;
    PERFORM pg_notify('{schema}', 'jobs');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_record_deletion() IS 'Runs after a deletion from jobs. Revokes the report tokens of the job, ends its history with a retirement, and cancels its waiting executions.';
