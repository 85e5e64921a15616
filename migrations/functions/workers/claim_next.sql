-- Functions for workers in other languages: claim_next, heartbeat, finish, fail, release. They share claim_due
-- with the replicas, and the same guard: every write matches lease_token and status = 'RUNNING'.
-- A replica that serves the queue of an external job plans its firings into PENDING executions; only workers
-- claim them. While one of them is unclaimed, later plan_times of its schedule become skips with reason
-- overlap, or wait (catch_up = all), unless overlap is allow. Workers that were away for a day therefore find
-- one execution. Limits hold at the claim; PENDING executions do not count.
-- The functions are SECURITY DEFINER, as the operator functions are, so that a worker needs no right on a table.
-- Every claim_next and heartbeat updates the row of the worker in runners, which runner_status shows. The row has
-- no queues, because only replicas serve queues; handlers has external:QUEUE for each queue from which the
-- worker has claimed.

CREATE OR REPLACE FUNCTION {schema}.claim_next(
    queue text, runner text, n integer DEFAULT 1, labels text[] DEFAULT '{}')
RETURNS TABLE (
    id bigint, job_name text, scope_kind text, scope_id text, plan_time timestamptz, attempt integer,
    trigger text, payload jsonb, target jsonb, lease_token uuid, stale_after timestamptz,
    stale_timeout interval, run_timeout interval, window_start timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan SET seq_page_cost = 1000 AS $$
#variable_conflict use_column
DECLARE
    trusted_since timestamptz;
    tokens        uuid[];
BEGIN
    IF claim_next.queue IS NULL OR coalesce(length(claim_next.runner), 0) NOT BETWEEN 1 AND 200
       OR coalesce(n, 0) NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION 'claim_next: queue = %, runner = %, n = %', claim_next.queue, claim_next.runner, n
            USING HINT = 'queue is the queue of the jobs, runner a name of 1 to 200 characters, n is 1 to 500.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}_internal.check_runner_labels('claim_next: labels', labels);
    PERFORM {schema}_internal.require_read_committed('claim_next');
    PERFORM {schema}_internal.take_up_pauses();
    trusted_since := {schema}_internal.register_worker(claim_next.runner, claim_next.queue, claim_next.labels);
    tokens := ARRAY(SELECT gen_random_uuid() FROM generate_series(1, n));
    -- Considers a few more than it claims, because schedules that another claim holds must not hide the rest.
    RETURN QUERY
        SELECT c.id, c.job_name, c.scope_kind, c.scope_id, c.plan_time, c.attempt, c.trigger,
               c.payload::jsonb, j.target, c.lease_token, c.stale_after, j.stale_timeout, j.run_timeout,
               c.window_start
        FROM {schema}_internal.claim_due(claim_next.runner, ARRAY[claim_next.queue], '{external}', '{}',
                                claim_next.labels, tokens, trusted_since, excluded_jobs => ARRAY(SELECT u.job_name FROM {schema}.unsettled_pauses u),
                                max_rows => least(500, n + 20)) c
        JOIN {schema}.jobs j ON j.name = c.job_name
        WHERE c.how <> 'refused';
END $$;
COMMENT ON FUNCTION {schema}.claim_next(text, text, integer, text[]) IS 'Claims at most n executions of this queue whose jobs have handler external, for a worker of this name. labels: those of the worker, such as {role=web,host=web1}; executions of jobs with "on" are claimed only with all labels that it names. Each is RUNNING under its lease_token until stale_after; renew it with heartbeat every third of stale_timeout. No row: nothing is due, or nothing may start; call again later. A worker that was seen at least every minute for one stale_timeout also steals stale leases of reentrant jobs. The worker has to stop its work after run_timeout (NULL: no limit), because nothing else stops it. window_start: of a job with windows, the start of the time to process, which ends before plan_time. Raises unless the transaction is READ COMMITTED.';
