-- A window of plan_times without a job was read from whole partitions, because the key begins with the job. In key
-- order after plan_time, so that a page of the ledger begins anywhere, even if many executions share a plan_time.
-- The condition is always true. Only the views execution_status and ledger repeat it, so no other statement can use
-- the index: those of replicas bound plan_time as well, to open few partitions, and with the statistics of an empty
-- partition the planner would prefer that range to their key.
-- The owner may build both indexes before with CREATE INDEX CONCURRENTLY (docs/operations.md): CREATE INDEX takes
-- over an index that a partition already has.
CREATE INDEX executions_plan_time ON {schema}.executions (plan_time, job_name, scope_kind, scope_id) WHERE attempt >= 0;
CREATE INDEX IF NOT EXISTS skips_plan_time ON {schema}.skips (from_plan_time, job_name, scope_kind, scope_id);
-- For a job with many scopes, of which the key would read all hours.
CREATE INDEX rolled_up_hours_job ON {schema}.rolled_up_hours (job_name, hour);
