-- Conditions that several statements share. PostgreSQL inlines these functions, so that a statement has the
-- plan that it would have with their text. Therefore they are LANGUAGE sql, neither STRICT nor SECURITY
-- DEFINER nor VOLATILE, and set no parameters; those that count are set-returning, because a scalar function
-- with a subquery is not inlined.

CREATE OR REPLACE FUNCTION {schema}_internal.max_steals() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 3';
COMMENT ON FUNCTION {schema}_internal.max_steals() IS 'Returns the limit of steals: a stale lease of a reentrant job is stolen while attempt < greatest(max_attempts, this). So a job of one attempt survives a crash, and a job that kills its runner does not kill runners for ever.';

CREATE OR REPLACE FUNCTION {schema}_internal.is_stale(
    stale_after timestamptz, stale_timeout interval, trusted_since timestamptz)
RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT stale_after < {schema}.db_now() AND {schema}.db_now() - stale_timeout >= trusted_since
$$;
COMMENT ON FUNCTION {schema}_internal.is_stale(timestamptz, interval, timestamptz) IS 'Returns whether a lease with this end is stale for a runner whose view of the database is unbroken since trusted_since. The view has to be unbroken for one stale_timeout.';

CREATE OR REPLACE FUNCTION {schema}_internal.may_be_stolen(
    reentrant boolean, cancel_requested_at timestamptz, attempt integer, max_attempts integer)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT reentrant AND cancel_requested_at IS NULL
       AND attempt < greatest(max_attempts, {schema}_internal.max_steals())
$$;
COMMENT ON FUNCTION {schema}_internal.may_be_stolen(boolean, timestamptz, integer, integer) IS 'Returns whether an execution may be stolen once its lease is stale. Otherwise the sweeper ends it.';

CREATE OR REPLACE FUNCTION {schema}_internal.job_room(job text, max_running integer)
RETURNS TABLE (room bigint) LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT CASE WHEN job_room.max_running IS NOT NULL THEN greatest(0, job_room.max_running - count(*)) END
    FROM {schema}.executions e
    WHERE job_room.max_running IS NOT NULL AND e.job_name = job AND e.status = 'RUNNING'
$$;
COMMENT ON FUNCTION {schema}_internal.job_room(text, integer) IS 'Counts how many more executions of this job may be RUNNING; NULL: max_running is NULL. Exact only after the lock of the row of the job, in a statement of its own.';

CREATE OR REPLACE FUNCTION {schema}_internal.queue_room(queue text, max_running integer)
RETURNS TABLE (room bigint) LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT CASE WHEN queue_room.max_running IS NOT NULL THEN greatest(0, queue_room.max_running - count(*)) END
    FROM {schema}.executions e
    WHERE queue_room.max_running IS NOT NULL AND e.queue = queue_room.queue AND e.status = 'RUNNING'
$$;
COMMENT ON FUNCTION {schema}_internal.queue_room(text, integer) IS 'Counts how many more executions of this queue may be RUNNING; NULL: max_running is NULL. Exact only after the lock of the row of the queue, in a statement of its own.';

CREATE OR REPLACE FUNCTION {schema}_internal.has_label(labels jsonb, label text)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN strpos(label, '=') = 0 THEN labels ? label
                ELSE labels ->> split_part(label, '=', 1) = substr(label, strpos(label, '=') + 1) END
$$;
COMMENT ON FUNCTION {schema}_internal.has_label(jsonb, text) IS 'Returns whether these labels of a job have a label: `team=data`, or `team` with any value. NULL: the job has no labels, or none with this key.';
