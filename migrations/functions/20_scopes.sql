-- Scopes appear, retire and return. Locks the job's row, then its schedules by key.

CREATE OR REPLACE FUNCTION {schema}.set_scopes(
    job text, kind text, ids text[], seen_at timestamptz DEFAULT NULL)
RETURNS TABLE (appeared bigint, returned bigint, retired bigint)
LANGUAGE plpgsql AS $$
DECLARE
    at timestamptz;
BEGIN
    -- SHARE: an edit that is under way would neither see the new rows nor give them its queue.
    PERFORM FROM {schema}.jobs j WHERE j.name = job FOR SHARE;
    PERFORM FROM {schema}.schedules s WHERE s.job_name = job
    ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE;
    at := coalesce(seen_at, {schema}.db_clock());
    INSERT INTO {schema}.schedules
        (job_name, scope_kind, scope_id, queue, planned_through, planned_revision, next_due_at, created_at)
    SELECT j.name, kind, u.id, j.queue, at, j.revision, at, at
    FROM {schema}.jobs j CROSS JOIN (SELECT DISTINCT id COLLATE "C" AS id FROM unnest(ids) u(id)) u
    WHERE j.name = job ORDER BY 1, 2, 3
    ON CONFLICT (job_name, scope_kind, scope_id) DO NOTHING;
    GET DIAGNOSTICS appeared = ROW_COUNT;
    UPDATE {schema}.schedules s
    SET returned_at = at, parked = NULL, next_due_at = at
    WHERE s.job_name = job AND s.scope_kind = kind AND s.scope_id = ANY (ids)
      AND s.retired_at IS NOT NULL AND s.returned_at IS NULL;
    GET DIAGNOSTICS returned = ROW_COUNT;
    UPDATE {schema}.schedules s
    SET retired_at = coalesce(s.retired_at, at), returned_at = NULL, parked = NULL, next_due_at = at
    WHERE s.job_name = job AND NOT (s.scope_kind = kind AND s.scope_id = ANY (ids))
      AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL);
    GET DIAGNOSTICS retired = ROW_COUNT;
    IF appeared + returned + retired > 0 THEN
        PERFORM pg_notify('{schema}', 'jobs');
    END IF;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION {schema}.set_scopes(text, text, text[], timestamptz) IS 'The job has exactly these scopes from now on: new ones start at now, others retire, retired ones return and the gap becomes a skip.';

CREATE OR REPLACE FUNCTION {schema}.retire_other_kinds(job text, kind text, at timestamptz)
RETURNS void LANGUAGE sql AS $$
    UPDATE {schema}.schedules s
    SET retired_at = coalesce(s.retired_at, at), returned_at = NULL, parked = NULL, next_due_at = at
    WHERE s.job_name = job AND s.scope_kind <> kind
      AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
$$;
COMMENT ON FUNCTION {schema}.retire_other_kinds(text, text, timestamptz) IS 'Scopes of another kind than the job''s retire; those of its kind are the provider''s.';
