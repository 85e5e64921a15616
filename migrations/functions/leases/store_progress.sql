-- Lock: rows of execution_progress, in the order of the ids, so that two runners never wait for each other. The executions
-- are not locked: what is written under a token that is no longer the present one is not shown.
CREATE OR REPLACE FUNCTION {schema}_internal.store_progress(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[],
    first_plan timestamptz, last_plan timestamptz, of_done bigint[], of_total bigint[], of_text text[])
RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO {schema}.execution_progress (execution_id, lease_token, done, total, text, reported_at)
    SELECT e.id, e.lease_token, u.done, u.total, u.text, {schema}.db_clock()
    FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, of_tokens, of_done, of_total, of_text)
          LIMIT cardinality(of_tokens))
        AS u(job, kind, scope, plan, token, done, total, text)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
    WHERE u.done IS NOT NULL AND e.plan_time BETWEEN first_plan AND last_plan
      AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
    ORDER BY e.id
    ON CONFLICT (execution_id) DO UPDATE
    SET lease_token = excluded.lease_token, done = excluded.done, total = excluded.total, text = excluded.text,
        reported_at = excluded.reported_at
$$;
COMMENT ON FUNCTION {schema}_internal.store_progress(text[], text[], text[], timestamptz[], uuid[], timestamptz, timestamptz, bigint[], bigint[], text[]) IS 'Stores the progress of those executions that are RUNNING under these tokens and have a done that is not NULL.';
