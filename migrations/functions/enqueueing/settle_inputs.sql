CREATE OR REPLACE FUNCTION {schema}_internal.give_up_superseded(scope {schema}.schedules) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH held AS MATERIALIZED (
        SELECT f.plan_time, p.id FROM {schema}.executions f
        CROSS JOIN LATERAL (
            SELECT q.id FROM {schema}.executions q
            WHERE (q.job_name, q.scope_kind, q.scope_id, q.enqueue_key)
                = (f.job_name, f.scope_kind, f.scope_id, f.enqueue_key)
              AND q.next_attempt_at IS NOT NULL AND q.status = 'PENDING' AND q.plan_time > f.plan_time
            LIMIT 1) p
        WHERE (f.job_name, f.scope_kind, f.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id)
          AND f.enqueue_key IS NOT NULL AND f.next_attempt_at IS NOT NULL AND f.status = 'FAILED'
        ORDER BY f.plan_time FOR NO KEY UPDATE OF f SKIP LOCKED
    )
    UPDATE {schema}.executions e
    SET next_attempt_at = NULL, updated_at = {schema}.db_clock(), changed_xact = pg_current_xact_id(),
        error_msg = left(concat_ws('; ', e.error_msg,
            format('not retried: execution %s of the same key took its place', h.id)), 4000)
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (scope.job_name, scope.scope_kind, scope.scope_id, h.plan_time)
      AND e.status = 'FAILED' AND e.next_attempt_at IS NOT NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.give_up_superseded({schema}.schedules) IS 'Ends the retries of FAILED executions of this scope while a newer execution of their key is PENDING, because an old payload must not run after a new one. The caller holds the lock of the schedule row.';

-- A scope that a success left dirty runs again: at once after progress, otherwise after the first backoff, so
-- that a worker that covers nothing does not busy-loop. Not beside an execution of a runner or a waiting one with a
-- key, which will cover it. Not after a failure or a cancellation, which waits for new input or a person.
CREATE OR REPLACE FUNCTION {schema}_internal.enqueue_dirty_scope(scope {schema}.schedules) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    definition {schema}.jobs;
    newest     {schema}.executions;
    furthest   bigint[];
    at         timestamptz;
    due        timestamptz;
    made       bigint;
BEGIN
    SELECT e.* INTO newest FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (scope.job_name, scope.scope_kind, scope.scope_id)
    ORDER BY e.plan_time DESC LIMIT 1;
    IF newest.status IS DISTINCT FROM 'SUCCESS' OR EXISTS (
            SELECT FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id)
                = (scope.job_name, scope.scope_kind, scope.scope_id)
              AND e.status = 'RUNNING' AND e.runner_id <> 'observed')
       OR EXISTS (
            SELECT FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id)
                = (scope.job_name, scope.scope_kind, scope.scope_id)
              AND e.next_attempt_at IS NOT NULL AND e.enqueue_key IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = scope.job_name AND j.retired_at IS NULL;
    IF NOT FOUND OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
        RETURN NULL;
    END IF;
    furthest := ARRAY(
        SELECT e.watermark FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id)
          AND e.status = 'SUCCESS' AND e.watermark IS NOT NULL
        ORDER BY e.watermark DESC LIMIT 2);
    at := {schema}.db_clock();
    due := at;
    IF newest.watermark IS NULL OR newest.watermark < furthest[1] OR furthest[2] = furthest[1] THEN
        due := greatest(at, newest.finished_at + definition.retry_backoff[1]);
    END IF;
    made := {schema}_internal.create_enqueued(
        definition, scope, {schema}_internal.free_plan_time(scope, at), due,
        CASE newest.trigger WHEN 'enqueue' THEN coalesce(newest.enqueue_key, '') ELSE '' END,
        CASE newest.trigger WHEN 'enqueue' THEN newest.payload END,
        scope.input_watermark, newest.group_id, newest.requested_by);
    PERFORM pg_notify('{schema}', 'pending');
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}_internal.enqueue_dirty_scope({schema}.schedules) IS 'Creates a PENDING execution for a dirty scope whose newest execution is a SUCCESS, and returns its id. It is due now if that success covered more than any before it, otherwise after the first backoff of the job. NULL: an execution runs or waits, or the newest one failed. The caller holds the lock of the schedule row.';

CREATE OR REPLACE FUNCTION {schema}_internal.settle_input(scope {schema}.schedules)
RETURNS {schema}.schedules LANGUAGE plpgsql AS $$
DECLARE
    settled {schema}.schedules := scope;
BEGIN
    settled.success_watermark := {schema}_internal.covered_watermark(scope);
    IF settled.success_watermark IS DISTINCT FROM scope.success_watermark THEN
        UPDATE {schema}.schedules s SET success_watermark = settled.success_watermark
        WHERE (s.job_name, s.scope_kind, s.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id);
    END IF;
    PERFORM {schema}_internal.give_up_superseded(scope);
    RETURN settled;
END $$;
COMMENT ON FUNCTION {schema}_internal.settle_input({schema}.schedules) IS 'Records what successes have covered, gives up retries whose key has a newer execution, and returns the updated row. The caller holds its lock.';

CREATE OR REPLACE FUNCTION {schema}_internal.settle_inputs(of_jobs text[], of_kinds text[], of_scopes text[])
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held  {schema}.schedules;
    count integer := 0;
BEGIN
    FOR held IN
        SELECT s.* FROM (SELECT DISTINCT * FROM unnest(of_jobs, of_kinds, of_scopes)) u(job, kind, scope)
        JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope)
        ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE OF s SKIP LOCKED
    LOOP
        held := {schema}_internal.settle_input(held);
        IF {schema}_internal.has_uncovered_input(held) THEN
            BEGIN
                count := count + ({schema}_internal.enqueue_dirty_scope(held) IS NOT NULL)::integer;
            EXCEPTION WHEN object_not_in_prerequisite_state OR data_exception
                           OR integrity_constraint_violation THEN
                RAISE WARNING 'job %: %/% is dirty and could not be made to run again: %',
                    held.job_name, held.scope_kind, held.scope_id, SQLERRM;
            END;
        END IF;
    END LOOP;
    RETURN count;
END $$;
COMMENT ON FUNCTION {schema}_internal.settle_inputs(text[], text[], text[]) IS 'Settles the input of these scopes after executions ended: records success_watermark, gives up superseded retries, and enqueues what is still dirty after a success. Returns how many executions it created. Skips locked schedules, so it may follow a finish in the same transaction; the holder of the lock or the sweeper settles those.';

CREATE OR REPLACE FUNCTION {schema}_internal.settle_left_behind() RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
    SELECT coalesce({schema}_internal.settle_inputs(array_agg(d.job_name), array_agg(d.scope_kind),
                                           array_agg(d.scope_id)), 0)
    FROM (SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
          WHERE coalesce(s.input_watermark > s.success_watermark, s.input_watermark IS NOT NULL)
          UNION
          SELECT f.job_name, f.scope_kind, f.scope_id FROM {schema}.executions f
          WHERE f.next_attempt_at IS NOT NULL AND f.enqueue_key IS NOT NULL AND f.status = 'FAILED'
          LIMIT 10000) d
$$;
COMMENT ON FUNCTION {schema}_internal.settle_left_behind() IS 'Calls settle_inputs for every dirty scope and every keyed retry, which a crash may have left. Returns how many executions it created.';
