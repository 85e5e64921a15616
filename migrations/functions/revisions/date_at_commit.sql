-- An edit takes effect when it is committed. The statement that edits can only write a provisional date,
-- because its transaction may stay open for an hour, and the plan_times of the new definition in that hour are
-- past. So the statement records in `undated` what it has written, and a deferred constraint trigger replaces
-- the date at COMMIT. It takes no lock: the transaction has locked these rows already, and no other transaction
-- has planned a firing of them since.

-- For scopes only: a runner calls it through set_scopes, and has no right to change the history of jobs.
CREATE OR REPLACE FUNCTION {schema}_internal.date_at_commit(
    job text, at timestamptz, kinds text[], scopes text[], changes text[])
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO {schema}.undated (job_name, at, kinds, scopes, changes)
    VALUES (job, at, kinds, scopes, changes)
$$;
COMMENT ON FUNCTION {schema}_internal.date_at_commit(text, timestamptz, text[], text[], text[]) IS 'Makes the COMMIT of this transaction replace the provisional date `at` of these scopes of the job.';

CREATE OR REPLACE FUNCTION {schema}_internal.date_revision(job text, number bigint, now_ timestamptz)
RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    before {schema}.job_revisions;
    at     timestamptz;
BEGIN
    SELECT r.* INTO before FROM {schema}.job_revisions r
    WHERE r.job_name = job AND r.revision < number ORDER BY r.revision DESC LIMIT 1;
    -- Two revisions of one transaction have the same date: the first was never in force. A retirement
    -- must have been in force, however briefly, because it ends what was due before it.
    at := greatest(now_, before.effective_from
        + CASE before.state WHEN 'retired' THEN interval '1 microsecond' ELSE interval '0' END);
    UPDATE {schema}.job_revisions r SET effective_from = at
    WHERE (r.job_name, r.revision) = (job, number);
    RETURN at;
END $$;
COMMENT ON FUNCTION {schema}_internal.date_revision(text, bigint, timestamptz) IS 'Dates an uncommitted revision, never before the one it follows; returns the date.';

-- A scope is probed by its key, because the history of a job may be much longer than the list of changes.
CREATE OR REPLACE FUNCTION {schema}_internal.record_retirements(
    mark {schema}.undated, kinds text[], scopes text[], retired timestamptz[], returned timestamptz[])
RETURNS void LANGUAGE plpgsql SET enable_nestloop = on AS $$
BEGIN
    IF mark.dated_at IS NOT NULL THEN
        -- The transaction has dated them before, with SET CONSTRAINTS. An earlier return is dated again below.
        DELETE FROM {schema}.scope_retirements h USING unnest(kinds, scopes, returned) u(kind, scope, returned)
        WHERE (h.job_name, h.scope_kind, h.scope_id, h.retired_at) = (mark.job_name, u.kind, u.scope, mark.at)
          AND u.returned IS NULL;
    END IF;
    INSERT INTO {schema}.scope_retirements AS h (job_name, scope_kind, scope_id, retired_at, returned_at)
    SELECT mark.job_name, u.kind, u.scope, u.retired, u.returned
    FROM unnest(kinds, scopes, retired, returned) u(kind, scope, retired, returned)
    -- A return in the same transaction undoes the retirement, and so does one before it, after the clock went back.
    WHERE u.returned IS NULL OR u.returned > u.retired
    ON CONFLICT (job_name, scope_kind, scope_id, retired_at) DO UPDATE SET returned_at = EXCLUDED.returned_at;
    DELETE FROM {schema}.scope_retirements h
    USING unnest(kinds, scopes, retired, returned) u(kind, scope, retired, returned)
    WHERE (h.job_name, h.scope_kind, h.scope_id, h.retired_at) = (mark.job_name, u.kind, u.scope, u.retired)
      AND u.returned <= u.retired;
END $$;
COMMENT ON FUNCTION {schema}_internal.record_retirements({schema}.undated, text[], text[], timestamptz[], timestamptz[]) IS 'Records the dates of retirements and returns of scopes in scope_retirements. The caller holds the locks of their schedules. returned NULL: the scope retires.';

-- Without seq scans and nested loops, because a job may have 100,000 scopes: each of its schedules is read
-- once. A nested loop would search the arrays again for each of them.
CREATE OR REPLACE FUNCTION {schema}_internal.date_scopes(mark {schema}.undated, now_ timestamptz)
RETURNS timestamptz LANGUAGE plpgsql SET enable_seqscan = off SET enable_nestloop = off AS $$
DECLARE
    -- Never before the revision that owns the first plan_times of a new scope.
    at timestamptz := greatest(now_, (SELECT max(r.effective_from) FROM {schema}.job_revisions r
                                      WHERE r.job_name = mark.job_name));
    kinds    text[];
    scopes   text[];
    retired  timestamptz[];
    returned timestamptz[];
BEGIN
    WITH dated AS (
        UPDATE {schema}.schedules s
        SET created_at = CASE WHEN u.change = 'appears' THEN at ELSE s.created_at END,
            planned_through = CASE WHEN u.change = 'appears' THEN at ELSE s.planned_through END,
            -- If the clock went back, what was planned as retired meanwhile stays so.
            returned_at = CASE WHEN u.change = 'returns' THEN greatest(at, s.planned_through) ELSE s.returned_at END,
            retired_at = CASE WHEN u.change = 'retires' THEN at ELSE s.retired_at END,
            next_due_at = CASE s.next_due_at WHEN mark.at THEN at ELSE s.next_due_at END
        FROM unnest(mark.kinds, mark.scopes, mark.changes) u(kind, scope, change)
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (mark.job_name, u.kind, u.scope)
          -- Another transaction may have been first to make the change.
          AND mark.at = CASE u.change WHEN 'appears' THEN s.created_at WHEN 'returns' THEN s.returned_at
                                      ELSE s.retired_at END
        RETURNING s.scope_kind, s.scope_id, u.change, s.retired_at, s.returned_at
    )
    SELECT array_agg(d.scope_kind), array_agg(d.scope_id), array_agg(d.retired_at),
           array_agg(CASE d.change WHEN 'returns' THEN d.returned_at END)
    INTO kinds, scopes, retired, returned FROM dated d WHERE d.change <> 'appears';
    IF kinds IS NOT NULL THEN
        PERFORM {schema}_internal.record_retirements(mark, kinds, scopes, retired, returned);
    END IF;
    RETURN at;
END $$;
COMMENT ON FUNCTION {schema}_internal.date_scopes({schema}.undated, timestamptz) IS 'Dates the uncommitted appearance, retirement or return of scopes, never before the newest revision of the job; returns the date.';

CREATE OR REPLACE FUNCTION {schema}_internal.date_undated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Not before the COMMIT itself. Otherwise its own date would count as an earlier one below, and it would
    -- be dated again until a clock that was set back has caught up.
    now_ timestamptz := greatest({schema}.db_clock(), {schema}.db_now());
    mark {schema}.undated;
    date timestamptz;
BEGIN
    -- The first row that fires dates all of them, so that one transaction has one date.
    IF NOT EXISTS (SELECT FROM {schema}.undated u
                   WHERE u.id = NEW.id AND u.dated_at IS NOT DISTINCT FROM NEW.dated_at) THEN
        RETURN NULL;
    END IF;
    IF NEW.dated_at >= {schema}.db_now() THEN
        DELETE FROM {schema}.undated u WHERE u.xact = pg_current_xact_id();
        RETURN NULL;
    END IF;
    -- SET CONSTRAINTS ALL IMMEDIATE fires this before the COMMIT. The UPDATE below makes it fire once
    -- more, at the COMMIT, and the statement that dates last finds its own date there.
    SET CONSTRAINTS {schema}.date_at_commit DEFERRED;
    FOR mark IN SELECT u.* FROM {schema}.undated u WHERE u.xact = pg_current_xact_id() ORDER BY u.id LOOP
        IF mark.revision IS NOT NULL THEN
            date := {schema}_internal.date_revision(mark.job_name, mark.revision, now_);
            PERFORM {schema}_internal.compare_pauses(mark.job_name);
        ELSE
            date := {schema}_internal.date_scopes(mark, now_);
        END IF;
        UPDATE {schema}.undated u SET at = date, dated_at = now_ WHERE u.id = mark.id;
    END LOOP;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.date_undated() IS 'Runs at COMMIT. Everything that the transaction recorded in undated takes effect at this instant.';
