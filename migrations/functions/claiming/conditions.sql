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
      AND e.runner_id <> 'observed'
$$;
COMMENT ON FUNCTION {schema}_internal.job_room(text, integer) IS 'Counts how many more executions of this job may be RUNNING; NULL: max_running is NULL. Runs of another scheduler do not count, because the ledger did not start them. Exact only after the lock of the row of the job, in a statement of its own.';

CREATE OR REPLACE FUNCTION {schema}_internal.queue_room(queue text, max_running integer)
RETURNS TABLE (room bigint) LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT CASE WHEN queue_room.max_running IS NOT NULL THEN greatest(0, queue_room.max_running - count(*)) END
    FROM {schema}.executions e
    WHERE queue_room.max_running IS NOT NULL AND e.queue = queue_room.queue AND e.status = 'RUNNING'
      AND e.runner_id <> 'observed'
$$;
COMMENT ON FUNCTION {schema}_internal.queue_room(text, integer) IS 'Counts how many more executions of this queue may be RUNNING; NULL: max_running is NULL. Runs of another scheduler do not count, because the ledger did not start them. Exact only after the lock of the row of the queue, in a statement of its own.';

CREATE OR REPLACE FUNCTION {schema}_internal.open_queues(of_queues text[])
RETURNS TABLE (name text) LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT q.name FROM unnest(of_queues) AS q(name)
    WHERE NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = q.name AND p.paused_at IS NOT NULL)
$$;
COMMENT ON FUNCTION {schema}_internal.open_queues(text[]) IS 'Returns those of these queues that are not paused.';

-- A loose scan: one probe of the index for each name.
CREATE OR REPLACE FUNCTION {schema}_internal.waiting_jobs()
RETURNS TABLE (job_name text) LANGUAGE sql STABLE ROWS 10 AS $$
    WITH RECURSIVE d AS (
        (SELECT e.job_name FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
         ORDER BY e.job_name LIMIT 1)
        UNION ALL
        SELECT (SELECT e.job_name FROM {schema}.executions e
                WHERE e.next_attempt_at IS NOT NULL AND e.job_name > d.job_name
                ORDER BY e.job_name LIMIT 1)
        FROM d WHERE d.job_name IS NOT NULL
    )
    SELECT d.job_name FROM d WHERE d.job_name IS NOT NULL
$$;
COMMENT ON FUNCTION {schema}_internal.waiting_jobs() IS 'Returns the names of the jobs that have an execution that is PENDING or awaits a retry, in order. Some of these jobs may be retired or deleted.';

CREATE OR REPLACE FUNCTION {schema}_internal.woken_jobs(of_queues text[])
RETURNS TABLE (queue text, job text) LANGUAGE sql STABLE ROWS 10 AS $$
    WITH RECURSIVE w AS (
        SELECT o.name AS queue, (
            SELECT s.job_name FROM {schema}.schedules s WHERE s.woken AND s.queue = o.name
            ORDER BY s.job_name LIMIT 1) AS job
        FROM {schema}_internal.open_queues(of_queues) o
        UNION ALL
        SELECT w.queue, (
            SELECT s.job_name FROM {schema}.schedules s
            WHERE s.woken AND s.queue = w.queue AND s.job_name > w.job ORDER BY s.job_name LIMIT 1)
        FROM w WHERE w.job IS NOT NULL
    )
    SELECT w.queue, w.job FROM w WHERE w.job IS NOT NULL
$$;
COMMENT ON FUNCTION {schema}_internal.woken_jobs(text[]) IS 'Returns the jobs with schedules that were woken to be planned again, of those of these queues that are not paused.';

CREATE OR REPLACE FUNCTION {schema}_internal.host_of(labels text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT substr(l.label, 6) FROM unnest(labels) l(label) WHERE starts_with(l.label, 'host=')
$$;
COMMENT ON FUNCTION {schema}_internal.host_of(text[]) IS 'Returns the host of a runner with these labels; NULL: none is among them.';

CREATE OR REPLACE FUNCTION {schema}_internal.scope_host(scope_kind text, scope_id text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE scope_kind WHEN 'host' THEN scope_id ELSE '' END
$$;
COMMENT ON FUNCTION {schema}_internal.scope_host(text, text) IS 'Returns the only host whose replicas may run this scope, or an empty text if those of any host may. The index schedules_due contains this expression.';

-- All woken schedules count as one, because a claim plans some of each job.
CREATE OR REPLACE FUNCTION {schema}_internal.next_schedule(
    of_queues text[], of_labels text[], excluded_jobs text[], due_from timestamptz)
RETURNS TABLE (due timestamptz) LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT least(
        (SELECT min(n.next_due_at) FROM {schema}_internal.open_queues(of_queues) o
         CROSS JOIN (VALUES (''), ({schema}_internal.host_of(of_labels))) own(host)
         CROSS JOIN LATERAL (
             SELECT s.next_due_at FROM {schema}.schedules s
             WHERE NOT s.woken AND s.queue = o.name AND {schema}_internal.scope_host(s.scope_kind, s.scope_id) = own.host
               AND s.next_due_at >= coalesce(due_from, '-infinity')
               AND s.job_name NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job))
             ORDER BY s.next_due_at LIMIT 1) n),
        (SELECT n.next_due_at FROM {schema}_internal.woken_jobs(of_queues) w
         CROSS JOIN LATERAL (
             SELECT s.next_due_at FROM {schema}.schedules s
             WHERE s.woken AND s.queue = w.queue AND s.job_name = w.job LIMIT 1) n
         WHERE w.job NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job))
         LIMIT 1))
$$;
COMMENT ON FUNCTION {schema}_internal.next_schedule(text[], text[], text[], timestamptz) IS 'Returns when the next schedule of these queues is due for a runner with these labels, without those of the excluded jobs and of paused queues; NULL: none is planned. due_from: none but woken ones are due before, so that the search leaves out dead versions of rows; NULL: unknown.';
