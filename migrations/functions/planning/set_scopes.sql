-- Scopes appear, retire and return. Lock order: the job's row, then by key the schedules that change, then new hosts.
-- A job may have 100,000 scopes, so each statement here reads the schedules of the job once. Neither
-- `= ANY (ids)` nor a nested loop does: the first is a linear search for each schedule in a generic plan,
-- and the planner prefers the second where it believes that the job has few schedules.

CREATE OR REPLACE FUNCTION {schema}_internal.scope_changes(of_job text, of_kind text, ids text[])
RETURNS TABLE (scope_kind text, scope_id text, change text)
LANGUAGE plpgsql SET enable_nestloop = off AS $$
BEGIN
    RETURN QUERY
    SELECT coalesce(s.scope_kind, w.kind), coalesce(s.scope_id, w.id),
           CASE WHEN s.scope_id IS NULL THEN 'appears'
                WHEN w.id IS NULL THEN 'retires' ELSE 'returns' END
    FROM (SELECT DISTINCT of_kind COLLATE "C" AS kind, u.id COLLATE "C" AS id FROM unnest(ids) u(id)
          WHERE u.id IS NOT NULL) w
    FULL JOIN (SELECT t.scope_kind, t.scope_id, t.retired_at IS NULL OR t.returned_at IS NOT NULL AS planned
               FROM {schema}.schedules t WHERE t.job_name = of_job) s
        ON (s.scope_kind, s.scope_id) = (w.kind, w.id)
    WHERE coalesce(s.planned, false) <> (w.id IS NOT NULL);
END $$;
COMMENT ON FUNCTION {schema}_internal.scope_changes(text, text, text[]) IS 'Returns the scopes of a job that would appear, return or retire if this list replaced them. Reads each schedule of the job once and locks none.';

CREATE OR REPLACE FUNCTION {schema}_internal.set_scopes(
    job text, kind text, ids text[], seen_at timestamptz DEFAULT NULL)
RETURNS TABLE (appeared bigint, returned bigint, retired bigint)
LANGUAGE plpgsql SET enable_nestloop = off AS $$
DECLARE
    at      timestamptz;
    fresh   text[];
    kinds   text[];
    known   text[];
    changes text[];
BEGIN
    appeared := 0; returned := 0; retired := 0;
    -- SHARE, because an edit in progress would neither see the new rows nor set their queue.
    PERFORM FROM {schema}.jobs j WHERE j.name = job FOR SHARE;
    SELECT array_agg(c.scope_id) FILTER (WHERE c.change = 'appears'),
           array_agg(c.scope_kind) FILTER (WHERE c.change <> 'appears'),
           array_agg(c.scope_id) FILTER (WHERE c.change <> 'appears'),
           array_agg(c.change) FILTER (WHERE c.change <> 'appears')
    INTO fresh, kinds, known, changes FROM {schema}_internal.scope_changes(job, kind, ids) c;
    IF fresh IS NULL AND known IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM FROM unnest(kinds, known) u(kind, id)
    JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (job, u.kind, u.id)
    ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE OF s;
    -- Read after the wait for the locks, which may have been long, because what was planned meanwhile stays
    -- valid.
    at := coalesce(seen_at, {schema}.db_clock());
    -- A host has a row, whose lock decides whether it is absent. The upkeep of partitions cannot see these schedules
    -- before the COMMIT. So this lock keeps it from deleting the host.
    IF kind = 'host' THEN
        PERFORM FROM {schema}.hosts h JOIN unnest(fresh) u(id) ON u.id = h.name ORDER BY h.name FOR KEY SHARE OF h;
        INSERT INTO {schema}.hosts (name, present_through) SELECT DISTINCT u.id COLLATE "C", timestamptz '1970-01-01Z'
        FROM unnest(fresh) u(id) ORDER BY 1 ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO {schema}.schedules
        (job_name, scope_kind, scope_id, queue, planned_through, planned_revision, next_due_at,
         woken, created_at)
    SELECT j.name, kind, u.id COLLATE "C", j.queue, at, j.revision, at, true, at
    FROM {schema}.jobs j CROSS JOIN unnest(fresh) u(id)
    WHERE j.name = job ORDER BY 1, 2, 3;
    GET DIAGNOSTICS appeared = ROW_COUNT;
    -- Another call may have changed a row before this one had its lock, hence the further conditions.
    UPDATE {schema}.schedules s
    SET returned_at = at, parked = NULL, next_due_at = at, woken = true
    FROM unnest(kinds, known, changes) u(kind, id, change)
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, u.kind, u.id) AND u.change = 'returns'
      AND s.retired_at IS NOT NULL AND s.returned_at IS NULL;
    GET DIAGNOSTICS returned = ROW_COUNT;
    UPDATE {schema}.schedules s
    SET retired_at = {schema}_internal.retired_since(s, at), returned_at = NULL, parked = NULL, next_due_at = at,
        woken = true
    FROM unnest(kinds, known, changes) u(kind, id, change)
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, u.kind, u.id) AND u.change = 'retires'
      AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL);
    GET DIAGNOSTICS retired = ROW_COUNT;
    IF appeared + returned + retired > 0 THEN
        IF fresh IS NOT NULL THEN
            kinds := array_fill(kind, ARRAY[cardinality(fresh)]) || kinds;
            changes := array_fill('appears'::text, ARRAY[cardinality(fresh)]) || changes;
        END IF;
        PERFORM {schema}_internal.date_at_commit(job, at, kinds => kinds, scopes => fresh || known, changes => changes);
        PERFORM pg_notify('{schema}', 'jobs');
    END IF;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION {schema}_internal.set_scopes(text, text, text[], timestamptz) IS 'Replaces the scopes of the job by this list from now on, and returns the numbers of changes. New scopes begin now. Scopes that are not in the list retire. Retired scopes that are in it return, and their gap becomes a skip. Scopes that do not change are neither written nor locked.';

CREATE OR REPLACE FUNCTION {schema}_internal.retire_other_kinds(job text, kind text, at timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    kinds  text[];
    scopes text[];
BEGIN
    WITH gone AS (
        UPDATE {schema}.schedules s
        SET retired_at = {schema}_internal.retired_since(s, at), returned_at = NULL, parked = NULL,
            next_due_at = at, woken = true
        WHERE s.job_name = job AND s.scope_kind <> kind
          AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
        RETURNING s.scope_kind, s.scope_id
    ) SELECT array_agg(g.scope_kind), array_agg(g.scope_id) INTO kinds, scopes FROM gone g;
    IF scopes IS NOT NULL THEN
        PERFORM {schema}_internal.date_at_commit(job, at, kinds => kinds, scopes => scopes,
            changes => array_fill('retires'::text, ARRAY[cardinality(scopes)]));
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.retire_other_kinds(text, text, timestamptz) IS 'Retires the scopes of the job that have another kind. Those of its own kind belong to its provider.';
