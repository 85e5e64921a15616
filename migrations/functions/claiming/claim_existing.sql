-- Claims of existing executions: PENDING ones are won, FAILED ones retried, stale leases stolen. Replicas begin
-- each of their claims with it, and claim_next calls it for workers in other languages.
-- Locks: schedules SKIP LOCKED; limited queues, then limited jobs, SKIP LOCKED (they come before
-- schedules in the lock order, so nothing here waits for them); executions FOR UPDATE in key order,
-- SKIP LOCKED. Each step is a statement of its own: a statement that took a lock still sees the state
-- before it, and in READ COMMITTED each statement of a VOLATILE function takes a new snapshot.
-- db_now() is the same in all of them: the time at which the client's statement began. So a row is due
-- here if it was due then. A lease begins when its row is written (db_clock()), because the statement may have
-- waited for a lock, and a lease that counts from its start could be over when it is returned.
-- plpgsql, because it keeps its plans: planning for all partitions costs more than these statements.
-- IN (SELECT unnest), not = ANY: of the two only the first has a hash in a generic plan, and a runner may have
-- thousands of functions, or leave thousands of jobs to others.
-- Parameters do not have the names of columns, because tests extract the statements and check their plans.
-- LATERAL, and LIMIT of a batch's own length, where a table is to be probed: docs/architecture.md, "Locks".

-- A loose scan of the job names that have such rows, then of as many rows of each job as it has room for, so
-- that a backlog of one job does not delay the others. Excluded are jobs that are paused (except for manual
-- executions created during the pause, which were forced), retired, full, or not for this runner; queues that
-- are paused or full; and scopes with an execution of a runner unless they may overlap (one hash of them, because a
-- probe per row would open every partition for each). The limits are counted again under their locks.
CREATE OR REPLACE FUNCTION {schema}_internal.lock_due_existing(
    of_queues text[], of_kinds text[], of_functions text[], of_labels text[], sql_commands boolean,
    excluded_jobs text[], max_rows integer)
RETURNS SETOF {schema}_internal.claim_candidate LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    WITH d AS MATERIALIZED (
        SELECT w.job_name FROM {schema}_internal.waiting_jobs() w
    ), busy AS MATERIALIZED (
        SELECT r.job_name, r.scope_kind, r.scope_id
        FROM d
        CROSS JOIN LATERAL (
            SELECT j.name FROM {schema}.jobs j WHERE j.name = d.job_name AND j.overlap <> 'allow' LIMIT 1) j
        CROSS JOIN LATERAL (
            SELECT e.job_name, e.scope_kind, e.scope_id FROM {schema}.executions e
            WHERE e.job_name = j.name AND e.status = 'RUNNING' AND e.runner_id <> 'observed' OFFSET 0) r
    )
    SELECT s.job_name, s.scope_kind, s.scope_id, x.plan_time, x.id, x.queue, false, x.forced,
           j.stale_timeout, j.allow_stale_reentry, s.input_watermark, s.running_from,
           j.windows AND x.trigger <> 'enqueue', NULL::timestamptz
    FROM d
    CROSS JOIN LATERAL (
        SELECT j.* FROM {schema}.jobs j WHERE j.name = d.job_name AND j.retired_at IS NULL
          AND j.handler = ANY (of_kinds)
          AND (j.handler <> 'python' OR j.target ->> 'python' IN (SELECT f.name FROM unnest(of_functions) f(name)))
          AND (j.handler <> 'command' OR sql_commands OR j.source IS NOT NULL)
          AND (j.on IS NULL OR j.on <@ of_labels)
          AND j.name NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job)) LIMIT 1
    ) j
    CROSS JOIN LATERAL {schema}_internal.job_room(j.name, j.max_running) limited
    CROSS JOIN LATERAL (
        SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.queue, e.trigger,
               e.trigger = 'manual' AND e.status = 'PENDING' AS forced
        FROM {schema}.executions e
        WHERE e.job_name = j.name
          AND e.next_attempt_at <= {schema}.db_now()
          AND e.next_attempt_at > coalesce(j.paused_at, '-infinity')
          AND (e.scope_kind <> 'host' OR 'host=' || e.scope_id = ANY (of_labels))
          AND (j.paused_at IS NULL OR (e.trigger = 'manual' AND e.status = 'PENDING'))
          AND e.queue = ANY (ARRAY(
              SELECT o.name FROM unnest(of_queues) AS o(name)
              WHERE NOT EXISTS (
                  SELECT FROM {schema}.queues q
                  CROSS JOIN LATERAL {schema}_internal.queue_room(q.name, q.max_running) full_at
                  WHERE q.name = o.name AND (q.paused_at IS NOT NULL OR full_at.room = 0))))
          AND (j.overlap = 'allow' OR (e.job_name, e.scope_kind, e.scope_id) NOT IN (
              SELECT b.job_name, b.scope_kind, b.scope_id FROM busy b))
        ORDER BY e.next_attempt_at LIMIT least(max_rows::bigint, limited.room)
    ) x
    JOIN {schema}.schedules s
        ON (s.job_name, s.scope_kind, s.scope_id) = (x.job_name, x.scope_kind, x.scope_id)
    LIMIT max_rows::bigint
    FOR NO KEY UPDATE OF s SKIP LOCKED;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_due_existing(text[], text[], text[], text[], boolean, text[], integer) IS 'Locks the schedules of executions that are PENDING or await a retry, are due, and may start on a runner of these abilities. Returns these executions.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_stale(
    of_queues text[], of_kinds text[], of_functions text[], of_labels text[], sql_commands boolean,
    excluded_jobs text[], trusted_since timestamptz, max_rows integer)
RETURNS SETOF {schema}_internal.claim_candidate LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    SELECT s.job_name, s.scope_kind, s.scope_id, e.plan_time, e.id, e.queue, true, false,
           e.stale_timeout, e.allow_stale_reentry, s.input_watermark, s.running_from, e.windows, NULL::timestamptz
    FROM (
        SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.queue, e.stale_after, j.stale_timeout,
               j.allow_stale_reentry, j.windows AND e.trigger <> 'enqueue' AS windows
        FROM {schema}.executions e
        CROSS JOIN LATERAL (SELECT j.* FROM {schema}.jobs j WHERE j.name = e.job_name OFFSET 0) j
        WHERE e.status = 'RUNNING' AND e.runner_id <> 'observed'
          AND {schema}_internal.is_stale(e.stale_after, j.stale_timeout, trusted_since)
          AND {schema}_internal.may_be_stolen(
              j.allow_stale_reentry, e.cancel_requested_at, e.attempt, e.max_attempts)
          AND j.retired_at IS NULL AND j.paused_at IS NULL
          AND e.queue = ANY (of_queues)
          AND (e.scope_kind <> 'host' OR 'host=' || e.scope_id = ANY (of_labels))
          AND NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = e.queue AND p.paused_at IS NOT NULL)
          AND j.handler = ANY (of_kinds)
          AND (j.handler <> 'python' OR j.target ->> 'python' IN (SELECT f.name FROM unnest(of_functions) f(name)))
          AND (j.handler <> 'command' OR sql_commands OR j.source IS NOT NULL)
          AND (j.on IS NULL OR j.on <@ of_labels)
          AND j.name NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job))
        ORDER BY e.stale_after
    ) e
    -- One by one, because a join may search each schedule for stale executions.
    CROSS JOIN LATERAL (
        SELECT s.job_name, s.scope_kind, s.scope_id, s.input_watermark, s.running_from FROM {schema}.schedules s
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (e.job_name, e.scope_kind, e.scope_id)
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    ) s
    LIMIT max_rows;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_stale(text[], text[], text[], text[], boolean, text[], timestamptz, integer) IS 'Locks the schedules of stale leases that may be stolen, and returns the executions. Reads every RUNNING row.';

-- Greedy in the order of the candidates. A steal takes no room: its row counts as RUNNING already.
CREATE OR REPLACE FUNCTION {schema}_internal.decide_existing(
    candidates {schema}_internal.claim_candidate[], held_queues text[], held_jobs text[], max_rows integer)
RETURNS {schema}_internal.claim_candidate[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        WITH c AS MATERIALIZED (
            SELECT u.* FROM ROWS FROM (unnest(candidates)) WITH ORDINALITY
                AS u(job, kind, scope, plan, id, queue, steals, forced, lease, reentrant, input, from_, windows, start,
                     place)
        ), running AS MATERIALIZED (
            SELECT e.job_name, e.scope_kind, e.scope_id, e.id
            FROM (SELECT DISTINCT c.job, c.kind, c.scope FROM c) u
            CROSS JOIN LATERAL (
                SELECT e.job_name, e.scope_kind, e.scope_id, e.id FROM {schema}.executions e
                WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope)
                  AND e.status = 'RUNNING' AND e.runner_id <> 'observed' OFFSET 0) e
        ), job AS MATERIALIZED (
            SELECT j.name, j.overlap, j.paused_at, j.stale_timeout, j.allow_stale_reentry,
                   (SELECT l.room FROM {schema}_internal.job_room(j.name, j.max_running) l) AS room
            FROM {schema}.jobs j
            WHERE j.name IN (SELECT c.job FROM c) AND j.retired_at IS NULL
              AND (j.max_running IS NULL OR j.name = ANY (held_jobs))
        ), queue AS MATERIALIZED (
            SELECT q.name, (SELECT l.room FROM {schema}_internal.queue_room(q.name, q.max_running) l) AS room
            FROM {schema}.queues q
            WHERE q.name IN (SELECT c.queue FROM c) AND q.max_running IS NOT NULL
        ), able AS (
            SELECT c.*, j.overlap, j.stale_timeout, j.allow_stale_reentry, j.room AS job_room,
                   q.room AS queue_room,
                   row_number() OVER (PARTITION BY c.job, c.kind, c.scope ORDER BY c.place) AS of_scope
            FROM c JOIN job j ON j.name = c.job
            LEFT JOIN queue q ON q.name = c.queue
            WHERE (q.name IS NULL OR q.name = ANY (held_queues))
              AND (j.paused_at IS NULL OR (c.forced AND c.plan > j.paused_at))
              AND (j.overlap = 'allow' OR NOT EXISTS (
                  SELECT FROM running r
                  WHERE (r.job_name, r.scope_kind, r.scope_id) = (c.job, c.kind, c.scope)
                    AND r.id <> c.id))
        ), in_job AS (
            SELECT a.*, row_number() OVER (PARTITION BY a.job, a.steals ORDER BY a.place) AS of_job
            FROM able a WHERE a.overlap = 'allow' OR a.of_scope = 1
        ), in_queue AS (
            SELECT i.*, row_number() OVER (PARTITION BY i.queue, i.steals ORDER BY i.place) AS of_queue
            FROM in_job i WHERE i.steals OR i.job_room IS NULL OR i.of_job <= i.job_room
        ), chosen AS (
            SELECT n.* FROM in_queue n
            WHERE n.steals OR n.queue_room IS NULL OR n.of_queue <= n.queue_room
            ORDER BY n.place LIMIT max_rows
        )
        SELECT coalesce(array_agg(ROW(h.job, h.kind, h.scope, h.plan, h.id, h.queue, h.steals, h.forced,
                                      h.stale_timeout, h.allow_stale_reentry, h.input,
                                      h.from_, h.windows, h.start)::{schema}_internal.claim_candidate
                                  ORDER BY h.place), '{}')
        FROM chosen h);
END $$;
COMMENT ON FUNCTION {schema}_internal.decide_existing({schema}_internal.claim_candidate[], text[], text[], integer) IS 'Returns those of these candidates that may start. The caller holds the locks of their schedules. Unless overlap is allow, at most one of a (job, scope) starts, and none while a runner executes another one. Limited jobs and queues need room, and their row has to be locked. At most max_rows start.';

-- The statement that claims. It repeats every condition of the scans. A locked row has a live writer, or a
-- user's assert_lease holds it FOR KEY SHARE.
CREATE OR REPLACE FUNCTION {schema}_internal.try_claim_existing(
    by_runner text, chosen {schema}_internal.claim_candidate[], new_tokens uuid[], trusted_since timestamptz,
    first_plan timestamptz, last_plan timestamptz)
RETURNS TABLE (
    job_name text, scope_kind text, scope_id text, plan_time timestamptz, id bigint, lease_token uuid,
    attempt integer, max_attempts integer, trigger text, payload text, revision bigint,
    started_at timestamptz, how text, queue text, stale_after timestamptz, window_start timestamptz)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT u.*, e.status AS old_status
        FROM (SELECT * FROM ROWS FROM (unnest(chosen), unnest(new_tokens)) LIMIT cardinality(chosen))
            AS u(job, kind, scope, plan, id, queue, steals, forced, lease, reentrant, input, from_, windows, start,
                 token)
        JOIN {schema}.executions e
            ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
        WHERE e.plan_time BETWEEN first_plan AND last_plan
          AND ((e.next_attempt_at <= {schema}.db_now() AND e.attempt < e.max_attempts)
            OR (e.status = (SELECT 'RUNNING') AND u.steals AND e.runner_id <> 'observed'
                AND {schema}_internal.is_stale(e.stale_after, u.lease, trusted_since)
                AND {schema}_internal.may_be_stolen(
                    u.reentrant, e.cancel_requested_at, e.attempt, e.max_attempts)))
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
        FOR UPDATE OF e SKIP LOCKED
    )
    UPDATE {schema}.executions e
    SET status = 'RUNNING', attempt = e.attempt + 1,
        max_attempts = greatest(e.max_attempts, e.attempt + 1),
        runner_id = by_runner, lease_token = h.token, next_attempt_at = NULL,
        -- db_clock(), because the execution that blocked it may have ended after this statement began.
        heartbeat_at = {schema}.db_clock(), stale_after = {schema}.db_clock() + h.lease,
        started_at = {schema}.db_clock(), finished_at = NULL, duration_ms = NULL, rows_affected = NULL,
        result = NULL, result_taken_at = NULL, output = NULL, error_code = NULL, error_msg = NULL,
        trace_id = NULL, cancel_requested_at = NULL, cancel_requested_by = NULL, updated_at = {schema}.db_now(),
        watermark = coalesce(h.input, e.watermark), window_start = h.start,
        attempts = CASE WHEN e.status = 'PENDING' THEN e.attempts
            ELSE e.attempts || (jsonb_build_object(
                'attempt', e.attempt, 'runner_id', e.runner_id, 'lease_token', e.lease_token,
                'started_at', e.started_at, 'last_seen', e.heartbeat_at, 'ended_at', e.finished_at,
                'error_code', CASE e.status WHEN 'RUNNING' THEN 'runner_crashed' ELSE e.error_code END,
                'error_msg', CASE e.status WHEN 'RUNNING' THEN 'lease not renewed; stolen by ' || by_runner
                             ELSE e.error_msg END)
                || CASE WHEN e.trace_id IS NULL THEN '{}' ELSE jsonb_build_object('trace_id', e.trace_id) END) END
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
      AND e.plan_time BETWEEN first_plan AND last_plan
    RETURNING e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.lease_token, e.attempt,
              e.max_attempts, e.trigger, e.payload::text, e.revision, e.started_at,
              CASE h.old_status WHEN 'PENDING' THEN 'won' WHEN 'FAILED' THEN 'retried' ELSE 'stolen' END,
              e.queue, e.stale_after, e.window_start;
END $$;
COMMENT ON FUNCTION {schema}_internal.try_claim_existing(text, {schema}_internal.claim_candidate[], uuid[], timestamptz, timestamptz, timestamptz) IS 'Claims these executions, each under its new token as its next attempt, and returns those that were claimed. The end of the previous attempt is kept in attempts.';

-- The next claim of the schedule searches for RUNNING executions from running_from on.
CREATE OR REPLACE FUNCTION {schema}_internal.lower_running_from(chosen {schema}_internal.claim_candidate[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(chosen) c WHERE c.plan_time < c.running_from) THEN
        UPDATE {schema}.schedules s SET running_from = least(s.running_from, c.first)
        FROM (SELECT c.job_name, c.scope_kind, c.scope_id, min(c.plan_time) AS first FROM unnest(chosen) c
              WHERE c.plan_time < c.running_from GROUP BY 1, 2, 3) c
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (c.job_name, c.scope_kind, c.scope_id);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.lower_running_from({schema}_internal.claim_candidate[]) IS 'Lowers running_from of the schedules of these executions, which are about to be RUNNING. The caller holds the locks of the schedules.';

CREATE OR REPLACE FUNCTION {schema}_internal.claim_existing(
    runner text, candidates {schema}_internal.claim_candidate[], tokens uuid[], trusted_since timestamptz)
RETURNS TABLE (
    job_name text, scope_kind text, scope_id text, plan_time timestamptz, id bigint, lease_token uuid,
    attempt integer, max_attempts integer, trigger text, payload text, revision bigint,
    started_at timestamptz, how text, queue text, stale_after timestamptz, window_start timestamptz)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    held_queues text[];
    held_jobs   text[];
    chosen      {schema}_internal.claim_candidate[];
    one         {schema}_internal.claim_candidate;
    place       integer := 1;
    first_plan  timestamptz;
    last_plan   timestamptz;
    message     text;
BEGIN
    SELECT array_agg(h.name) INTO held_queues FROM (
        SELECT q.name FROM {schema}.queues q
        WHERE q.name = ANY (ARRAY(SELECT c.queue FROM unnest(candidates) c)) AND q.max_running IS NOT NULL
        ORDER BY q.name FOR NO KEY UPDATE SKIP LOCKED) h;
    SELECT array_agg(h.name) INTO held_jobs FROM (
        SELECT j.name FROM {schema}.jobs j
        WHERE j.name = ANY (ARRAY(SELECT c.job_name FROM unnest(candidates) c)) AND j.max_running IS NOT NULL
        ORDER BY j.name FOR NO KEY UPDATE SKIP LOCKED) h;
    -- Before the decision, so that what ends here takes no room.
    IF EXISTS (SELECT FROM unnest(candidates) c WHERE c.windows) THEN
        candidates := {schema}_internal.begin_windows(candidates);
    END IF;
    chosen := {schema}_internal.decide_existing(candidates, held_queues, held_jobs, cardinality(tokens));
    IF cardinality(chosen) = 0 THEN
        RETURN;
    END IF;
    PERFORM {schema}_internal.lower_running_from(chosen);
    SELECT min(c.plan_time), max(c.plan_time) INTO first_plan, last_plan FROM unnest(chosen) c;
    BEGIN
        RETURN QUERY SELECT t.* FROM {schema}_internal.try_claim_existing(
            runner, chosen, tokens[:cardinality(chosen)], trusted_since, first_plan, last_plan) t;
        RETURN;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
        NULL;  -- a value that the database refuses must not prevent the other claims
    END;
    -- For record_spec_error. A claim that waited for it after another one was written would return a part of its lease.
    LOCK TABLE {schema}.jobs IN ROW EXCLUSIVE MODE;
    FOREACH one IN ARRAY chosen LOOP
        BEGIN
            RETURN QUERY SELECT t.* FROM {schema}_internal.try_claim_existing(
                runner, ARRAY[one], tokens[place:place], trusted_since, one.plan_time, one.plan_time) t;
            -- A token that was not used stays the next one: the caller counts the claimed executions.
            IF FOUND THEN
                place := place + 1;
            END IF;
        EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
            message := SQLERRM;
            PERFORM {schema}_internal.record_spec_error(one.job_name, message);
            RETURN QUERY SELECT one.job_name, one.scope_kind, one.scope_id, one.plan_time, one.id,
                NULL::uuid, 0, 0, '', message, 0::bigint, {schema}.db_now(), 'refused', one.queue,
                NULL::timestamptz, NULL::timestamptz;
        END;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.claim_existing(text, {schema}_internal.claim_candidate[], uuid[], timestamptz) IS 'Claims those of these candidates that may start, each under one of the tokens. The caller holds the locks of their schedules. how: won, retried or stolen. refused: the database does not accept a value of the row; payload is the message, which is also recorded in spec_error.';

-- VOLATILE, so that no plan evaluates it beforehand.
CREATE OR REPLACE FUNCTION {schema}_internal.refuse_start(due_at timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION '%', CASE WHEN due_at > {schema}.db_now()
            THEN format('executions are due at %s, and it is %s', due_at, {schema}.db_now())
            ELSE 'the queue of executions was paused or limited while they were claimed' END
        USING HINT = 'Nothing was written. The next claim decides again.', ERRCODE = 'CL007';
END $$;
COMMENT ON FUNCTION {schema}_internal.refuse_start(timestamptz) IS 'Raises CL007: these executions must not start now.';
