-- Redaction: remove the data of executions that may be personal, one for a person (redact), or all that are older than
-- keep_output of their job (functions/retention/redact_outputs.sql). Lock: the turn alerts, because a step that has read an execution would
-- write its messages into an alert afterwards; then the rows of the executions, and the rows of their alerts, waiting.
-- raise_alerts(), which has the turn too, waits for none of these rows. Deliveries read their alerts when they are sent.

-- A state is about the scope of its execution, or about the whole job.
CREATE OR REPLACE FUNCTION {schema}_internal.redact_alerts(
    of_job text, of_kind text, of_scope text, of_executions bigint[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    text_of constant text := 'The data of execution %s was redacted.';
    kept    constant text[] := '{error_msg,output}';
BEGIN
    UPDATE {schema}.tracked_states t SET summary = format(text_of, t.execution_id), details = t.details - kept
    WHERE t.job_name = of_job AND t.scope_kind IN (of_kind, '') AND t.scope_id IN (of_scope, '')
      AND t.execution_id = ANY (of_executions);
    UPDATE {schema}.raised_alerts a SET summary = format(text_of, a.execution_id), details = a.details - kept
    WHERE a.execution_id = ANY (of_executions);
END $$;
COMMENT ON FUNCTION {schema}_internal.redact_alerts(text, text, text, bigint[]) IS 'Removes the messages and the output of executions of one (job, scope) from their alerts.';

CREATE OR REPLACE FUNCTION {schema}.redact(execution_id bigint, reason text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held    {schema}.executions;
    changed boolean;
BEGIN
    PERFORM {schema}_internal.await_turn('alerts');
    -- Waits for a statement that writes the row, and reads what it wrote.
    SELECT e.* INTO held FROM {schema}.executions e WHERE e.id = execution_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_execution(execution_id);
    END IF;
    IF held.status IN ('PENDING', 'RUNNING') OR held.next_attempt_at IS NOT NULL THEN
        RAISE EXCEPTION 'execution %: it is % and has not ended; only an execution that has ended can be redacted',
                held.id, held.status
            USING HINT = 'Wait until it ends, or end it with {schema}.cancel.', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    changed := held.redacted_at IS NULL;
    IF changed THEN
        PERFORM {schema}_internal.redact_executions(
            held.job_name, held.scope_kind, held.scope_id, ARRAY[held.plan_time]);
    END IF;
    PERFORM {schema}_internal.record_action('redact', 'execution', execution_id::text, requested_by,
        CASE WHEN changed THEN 'done' ELSE 'unchanged' END, held.job_name, execution_ids => ARRAY[execution_id],
        reason => reason);
    RETURN changed;
END $$;
COMMENT ON FUNCTION {schema}.redact(bigint, text, text) IS 'Removes the payload, result, output, key and error messages of an execution that has ended, also from its alerts. The plan_time, status, error_code and times stay, so that the ledger still accounts for it. It cannot be retried afterwards. Returns false if it was redacted before.';
