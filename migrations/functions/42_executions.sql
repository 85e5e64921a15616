-- Operator functions: cancel or retry one execution, or fence it. They take an id, and probe every partition
-- for it, because such calls are rare.

CREATE OR REPLACE FUNCTION {schema}_internal.raise_unknown_execution(execution_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'execution % does not exist', execution_id
        USING HINT = 'Its partition may have been dropped after retention. To list executions, read {schema}.ledger.',
              ERRCODE = 'no_data_found';
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_unknown_execution(bigint) IS 'Raises that this execution does not exist.';

CREATE OR REPLACE FUNCTION {schema}.cancel(execution_id bigint, requested_by text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester text := coalesce(requested_by, session_user);
    held      {schema}.executions;
    outcome   text;
    at        timestamptz := {schema}.db_clock();
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
    outcome := CASE WHEN held.status = 'RUNNING' THEN 'requested'
                    WHEN held.next_attempt_at IS NULL THEN 'already_finished' ELSE 'cancelled' END;
    PERFORM {schema}_internal.record_action('cancel', 'execution', execution_id::text, requester, outcome,
        held.job_name, execution_ids => ARRAY[execution_id]);
    IF outcome = 'already_finished' THEN
        RETURN outcome;
    END IF;
    -- Not CANCELLED while a handler is RUNNING, because its holder writes the end.
    UPDATE {schema}.executions e
    SET status = CASE e.status WHEN 'RUNNING' THEN e.status ELSE 'CANCELLED' END,
        next_attempt_at = NULL,
        finished_at = CASE e.status WHEN 'RUNNING' THEN NULL ELSE coalesce(e.finished_at, at) END,
        cancel_requested_at = coalesce(e.cancel_requested_at, at),
        cancel_requested_by = coalesce(e.cancel_requested_by, requester), updated_at = at,
        changed_xact = CASE e.status WHEN 'RUNNING' THEN e.changed_xact ELSE pg_current_xact_id() END
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (held.job_name, held.scope_kind, held.scope_id, held.plan_time);
    IF held.status <> 'RUNNING' THEN
        -- For the programs that wait for it. Ends on the hot path notify only those that are awaited.
        PERFORM pg_notify('{schema}_ended', held.id::text);
        RETURN outcome;
    END IF;
    PERFORM pg_notify('{schema}', 'cancel');
    RETURN outcome;
END $$;
COMMENT ON FUNCTION {schema}.cancel(bigint, text) IS 'Requests that an execution ends. cancelled: it was waiting, and ended at once. requested: it is RUNNING, and its runner is notified. already_finished: it had ended. busy: its row is locked; call again.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_retry(held {schema}.executions, force boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    definition {schema}.jobs;
BEGIN
    IF held.status IN ('SUCCESS', 'RUNNING', 'PENDING') THEN
        RAISE EXCEPTION 'execution %: it is %; only FAILED and CANCELLED executions can be retried', held.id, held.status
            USING HINT = CASE held.status
                      WHEN 'SUCCESS' THEN 'A success is never overwritten; {schema}.trigger creates another execution.'
                      WHEN 'RUNNING' THEN 'Wait until it ends, or request its end with {schema}.cancel.'
                      ELSE 'It has not started yet.' END,
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = held.job_name;
    IF NOT FOUND OR definition.retired_at IS NOT NULL THEN
        RAISE EXCEPTION 'execution %: its job % is retired', held.id, held.job_name
            USING HINT = 'Add the job again first.', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF held.error_code IN ('stale_timeout', 'shutdown') AND NOT definition.allow_stale_reentry AND NOT force THEN
        RAISE EXCEPTION 'execution %: the end of attempt % is unknown (%), and job % is not reentrant',
                held.id, held.attempt, held.error_code, held.job_name
            USING DETAIL = format('It ran on %s, last seen %s. Its work may be finished, half finished, or still in progress.',
                                  held.runner_id, held.heartbeat_at),
                  HINT = 'Make sure that it has ended and may run again; then use force => true.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_retry({schema}.executions, boolean) IS 'Raises unless this execution may have one more attempt. With force, the end of its last attempt may be unknown.';

CREATE OR REPLACE FUNCTION {schema}.retry(
    execution_id bigint, force boolean DEFAULT false, requested_by text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held    {schema}.executions;
    at      timestamptz;
    outcome text;
BEGIN
    SELECT e.* INTO held FROM {schema}.executions e WHERE e.id = execution_id;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_execution(execution_id);
    END IF;
    PERFORM FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (held.job_name, held.scope_kind, held.scope_id)
    FOR NO KEY UPDATE;
    -- FOR UPDATE, to wait for a user's assert_lease of the previous attempt, whose effects are undecided until
    -- then.
    SELECT e.* INTO held FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (held.job_name, held.scope_kind, held.scope_id, held.plan_time) FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_execution(execution_id);  -- dropped with its partition meanwhile
    END IF;
    PERFORM {schema}_internal.check_retry(held, force);
    at := {schema}.db_clock();
    -- Without a token it was never claimed, or was released: it is PENDING again.
    UPDATE {schema}.executions e
    SET status = CASE WHEN e.lease_token IS NULL THEN 'PENDING' ELSE 'FAILED' END,
        error_code = CASE WHEN e.lease_token IS NOT NULL THEN coalesce(e.error_code, 'cancelled') END,
        finished_at = CASE WHEN e.lease_token IS NOT NULL THEN e.finished_at END,
        next_attempt_at = CASE WHEN e.lease_token IS NULL THEN e.due_at
                               ELSE least(e.next_attempt_at, at) END,
        max_attempts = greatest(e.max_attempts, e.attempt + 1), cancel_requested_at = NULL,
        cancel_requested_by = NULL, updated_at = at, changed_xact = pg_current_xact_id()
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (held.job_name, held.scope_kind, held.scope_id, held.plan_time);
    outcome := CASE WHEN held.next_attempt_at IS NULL THEN 'retried' ELSE 'brought_forward' END;
    PERFORM {schema}_internal.record_action('retry', 'execution', execution_id::text, requested_by, outcome,
        held.job_name, execution_ids => ARRAY[execution_id], arguments => jsonb_build_object('force', force));
    PERFORM pg_notify('{schema}', 'pending');
    RETURN outcome;
END $$;
COMMENT ON FUNCTION {schema}.retry(bigint, boolean, text) IS 'Gives a FAILED or CANCELLED execution one more attempt, which is due now: retried. brought_forward: it was awaiting a retry, which is due now. Raises for other statuses, and unless force is true if the end of the last attempt is unknown and the job is not reentrant. Waits for the locks of its schedule and its own row (lock_timeout).';

CREATE OR REPLACE FUNCTION {schema}.assert_lease(execution_id bigint, token uuid)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM {schema}.executions e
    WHERE e.id = execution_id AND e.lease_token = token AND e.status = (SELECT 'RUNNING')
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'execution %: its lease is lost', execution_id
            USING DETAIL = 'It is not RUNNING under this token: another runner holds it, or it has ended.',
                  HINT = 'Roll this transaction back; its writes must not be committed.',
                  ERRCODE = 'CL001';
    END IF;
    -- The transaction must not outlive its client. With these settings the server detects a lost host after
    -- about ten seconds instead of two hours, and a lost client also while a statement runs, if the kernel
    -- supports it. (No tcp_user_timeout: it would end clients that read slowly.)
    PERFORM set_config('tcp_keepalives_idle', '5', true), set_config('tcp_keepalives_interval', '2', true),
        set_config('tcp_keepalives_count', '3', true),
        set_config('client_connection_check_interval',
                   CASE WHEN version() LIKE '%linux%' THEN '2000'
                        ELSE current_setting('client_connection_check_interval') END, true);
END $$;
COMMENT ON FUNCTION {schema}.assert_lease(bigint, uuid) IS 'Raises CL001 unless the execution is RUNNING under this token. Until the transaction of the caller ends, the execution is not stolen or swept; heartbeats, its finish and requests to cancel still pass. The server ends the transaction soon after its client is gone.';
