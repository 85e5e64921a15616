CREATE OR REPLACE FUNCTION {schema}_internal.claim_due(
    runner text, queues text[], kinds text[], functions text[], labels text[], tokens uuid[],
    trusted_since timestamptz, sql_commands boolean DEFAULT false, excluded_jobs text[] DEFAULT '{}',
    max_rows integer DEFAULT NULL)
RETURNS TABLE (
    job_name text, scope_kind text, scope_id text, plan_time timestamptz, id bigint, lease_token uuid,
    attempt integer, max_attempts integer, trigger text, payload text, revision bigint,
    started_at timestamptz, how text, queue text, stale_after timestamptz, window_start timestamptz, more boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    excluded   text[] := excluded_jobs;
    row_limit  integer := coalesce(max_rows, cardinality(tokens));
    candidates {schema}_internal.claim_candidate[];
    claimed    {schema}_internal.claimed_execution[];
    refused    text[];
    used       integer := 0;
    rounds     integer := 0;
    unseen     boolean;
    made_room  boolean;
BEGIN
    PERFORM {schema}_internal.require_read_committed('claim_due');
    PERFORM {schema}_internal.require_own_database();
    LOOP
        candidates := '{}';
        IF trusted_since IS NOT NULL THEN
            candidates := ARRAY(SELECT c FROM {schema}_internal.lock_stale(
                queues, kinds, functions, labels, sql_commands, excluded, trusted_since, row_limit) c);
        END IF;
        -- In most claims of replicas nothing waits, and this probe costs a tenth of lock_due_existing.
        IF EXISTS (SELECT FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL) THEN
            candidates := candidates || ARRAY(SELECT c FROM {schema}_internal.lock_due_existing(
                queues, kinds, functions, labels, sql_commands, excluded, row_limit) c);
        END IF;
        EXIT WHEN cardinality(candidates) = 0;
        -- Of two candidates of one scope only one may start. The other may have displaced a third one, because
        -- no more candidates are read than their job has room for.
        unseen := cardinality(candidates) >= row_limit OR cardinality(candidates) > (
            SELECT count(DISTINCT (c.job_name, c.scope_kind, c.scope_id)) FROM unnest(candidates) c);
        claimed := ARRAY(SELECT t::{schema}_internal.claimed_execution FROM {schema}_internal.claim_existing(
            runner, candidates, tokens[used + 1:], trusted_since) t);
        RETURN QUERY SELECT r.*, unseen FROM unnest(claimed) r;
        refused := ARRAY(SELECT r.job_name FROM unnest(claimed) r WHERE r.how = 'refused');
        used := used + cardinality(claimed) - cardinality(refused);
        excluded := excluded || refused;
        -- begin_windows ended those whose window is processed.
        made_room := cardinality(claimed) < cardinality(candidates) AND EXISTS (
            SELECT FROM unnest(candidates) c
            CROSS JOIN LATERAL (
                SELECT FROM {schema}.executions e
                WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (c.job_name, c.scope_kind, c.scope_id, c.plan_time)
                  AND e.next_attempt_at IS NULL AND e.status <> 'RUNNING' LIMIT 1) e
            WHERE c.windows);
        rounds := rounds + 1;
        -- The refused and the ended ones may have displaced others from the batch.
        EXIT WHEN NOT made_room AND cardinality(refused) = 0 OR used >= cardinality(tokens);
        -- A large backlog of ended ones is left to later claims, because this transaction holds the locks of limits.
        IF rounds >= 100 THEN
            more := true;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.claim_due(text, text[], text[], text[], text[], uuid[], timestamptz, boolean, text[], integer) IS 'Claims executions that exist and are due, for a runner that serves these queues, handler kinds and Python functions and has these labels; at most one for each token, and at most max_rows are considered. trusted_since: the runner has trusted the clock of the database since then; NULL: it does not steal. more: others may be due. After 100 rounds of executions that are ended instead, the last row has nothing but more. excluded_jobs: jobs of which nothing is claimed; the caller adds those in unsettled_pauses. Raises CL005 in another database than the ledger''s own, and unless the transaction is READ COMMITTED.';
