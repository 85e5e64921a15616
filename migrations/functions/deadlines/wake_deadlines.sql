CREATE OR REPLACE FUNCTION {schema}_internal.jobs_wake_deadlines() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.revision = OLD.revision THEN
        RETURN NULL;
    END IF;
    IF coalesce(NEW.start_by, NEW.finish_by, NEW.expect_duration) IS NOT NULL THEN
        -- Plan_times from the COMMIT on belong to the new revision; those before it have no deadlines.
        INSERT INTO {schema}.deadline_cursors AS c (job_name, through, next_at)
        VALUES (NEW.name, {schema}.db_clock(), {schema}.db_clock())
        ON CONFLICT (job_name) DO UPDATE
        SET next_at = EXCLUDED.next_at, following = CASE WHEN c.upto IS NOT NULL THEN EXCLUDED.next_at END;
    ELSIF TG_OP = 'UPDATE' THEN
        UPDATE {schema}.deadline_cursors c
        SET next_at = {schema}.db_clock(), following = CASE WHEN c.upto IS NOT NULL THEN {schema}.db_clock() END
        WHERE c.job_name = NEW.name;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_wake_deadlines() IS 'Runs after a write to jobs. Makes the next step compute the deadlines of the job.';

CREATE OR REPLACE FUNCTION {schema}_internal.note_manual_deadlines(
    definition {schema}.jobs, scope {schema}.schedules, plan_time timestamptz, created_at timestamptz)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO {schema}.manual_deadlines (job_name, scope_kind, scope_id, plan_time, revision, created_at)
    SELECT scope.job_name, scope.scope_kind, scope.scope_id, plan_time, definition.revision, created_at
    WHERE coalesce(definition.start_by, definition.finish_by, definition.expect_duration) IS NOT NULL
$$;
COMMENT ON FUNCTION {schema}_internal.note_manual_deadlines({schema}.jobs, {schema}.schedules, timestamptz, timestamptz) IS 'Notes a manual execution for the computation of its deadlines, if its job has any.';

CREATE OR REPLACE FUNCTION {schema}_internal.next_deadline() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT least((SELECT min(c.next_at) FROM {schema}.deadline_cursors c WHERE c.next_at IS NOT NULL),
                 (SELECT min(d.look_at) FROM {schema}.deadlines d),
                 (SELECT min(b.look_at) FROM {schema}.deadline_breaches b WHERE b.closed_at IS NULL),
                 (SELECT min(m.created_at) FROM {schema}.manual_deadlines m))
$$;
COMMENT ON FUNCTION {schema}_internal.next_deadline() IS 'Returns when the next step for deadlines has something to do; NULL: nothing is planned. Four probes of indexes. Locks nothing.';
