-- Operator functions: cancel or retry one execution, or fence it. They take an id, and probe every partition
-- for it, because such calls are rare.

CREATE OR REPLACE FUNCTION {schema}_internal.cancel_outcome(held {schema}.executions) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN held.status = 'RUNNING' AND held.runner_id <> 'observed' THEN 'requested'
                WHEN held.next_attempt_at IS NULL AND held.status NOT IN ('PENDING', 'RUNNING') THEN 'already_finished' ELSE 'cancelled' END
$$;
COMMENT ON FUNCTION {schema}_internal.cancel_outcome({schema}.executions) IS 'Returns what cancel does with an execution: cancelled, requested or already_finished.';

CREATE OR REPLACE FUNCTION {schema}.cancel(execution_id bigint, requested_by text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester text := coalesce(requested_by, session_user);
    held      {schema}.executions;
    outcome   text;
    at        timestamptz := {schema}.db_clock();
    is_observed boolean;
BEGIN
    -- NO KEY, because a request to cancel must pass a handler that holds the row FOR KEY SHARE
    -- (assert_lease). A row that is not RUNNING has no such holder with a right to write.
    SELECT e.* INTO held FROM {schema}.executions e WHERE e.id = execution_id
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        IF NOT EXISTS (SELECT FROM {schema}.executions e WHERE e.id = execution_id) THEN
            PERFORM {schema}_internal.raise_unknown_execution(execution_id);
        END IF;
        PERFORM {schema}_internal.record_action('cancel', 'execution', execution_id::text, requester, 'busy');
        RETURN 'busy';
    END IF;
    outcome := {schema}_internal.cancel_outcome(held);
    is_observed := held.status = 'RUNNING' AND held.runner_id = 'observed';
    PERFORM {schema}_internal.record_action('cancel', 'execution', execution_id::text, requester, outcome,
        held.job_name, execution_ids => ARRAY[execution_id]);
    IF outcome = 'already_finished' THEN
        RETURN outcome;
    END IF;
    -- Not CANCELLED while a handler is RUNNING, because its holder writes the end. Nothing can stop a run of another
    -- scheduler, so it ends here, and an end that is reported later replaces this one.
    UPDATE {schema}.executions e
    SET status = CASE outcome WHEN 'requested' THEN e.status ELSE 'CANCELLED' END,
        next_attempt_at = NULL,
        finished_at = CASE outcome WHEN 'requested' THEN NULL ELSE coalesce(e.finished_at, at) END,
        error_code = CASE WHEN is_observed THEN 'not_ended' ELSE e.error_code END,
        error_msg = CASE WHEN is_observed THEN 'no end was reported before the cancel; the end of the run is unknown' ELSE e.error_msg END,
        duration_ms = CASE WHEN is_observed THEN greatest(0, extract(epoch FROM at - e.started_at) * 1000)::bigint ELSE e.duration_ms END,
        cancel_requested_at = coalesce(e.cancel_requested_at, at),
        cancel_requested_by = coalesce(e.cancel_requested_by, requester), updated_at = at,
        changed_xact = CASE outcome WHEN 'requested' THEN e.changed_xact ELSE pg_current_xact_id() END
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (held.job_name, held.scope_kind, held.scope_id, held.plan_time);
    DELETE FROM {schema}.gates g
    WHERE held.status = 'PENDING' AND (g.job_name, g.scope_kind, g.scope_id, g.plan_time)
        = (held.job_name, held.scope_kind, held.scope_id, held.plan_time);
    IF outcome <> 'requested' THEN
        -- For the programs that wait for it. Ends on the hot path notify only those that are awaited.
        PERFORM pg_notify('{schema}_ended', held.id::text);
        RETURN outcome;
    END IF;
    PERFORM pg_notify('{schema}', 'cancel');
    RETURN outcome;
END $$;
COMMENT ON FUNCTION {schema}.cancel(bigint, text) IS 'Requests that an execution ends. cancelled: it was waiting, or was started by another scheduler, and ended at once. requested: it is RUNNING, and its runner is notified. already_finished: it had ended. busy: its row is locked; call again.';
