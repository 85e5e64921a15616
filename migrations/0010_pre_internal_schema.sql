-- Functions that only the ledger calls move into a schema of their own, so that {schema} has those that
-- people call. Triggers and views keep the functions that they have.
DO $$
DECLARE
    internal constant text[] := regexp_split_to_array(
        'apply_overlap backfill_actions cancel_waiting check_acceptance check_backfill check_backoff
         check_enqueue check_json check_maintenance check_queue check_retry check_runner check_scopes
         check_target check_trigger claim_due claim_existing claim_refusal commit_durably covered_watermark
         covering_execution create_backfilled create_enqueued create_missing_partitions create_partition
         create_partitions create_role current_timeline date_at_commit date_revision date_scopes date_undated
         decide_existing drop_partition due_in_scope end_attempt enqueue_dirty_scope free_plan_time
         give_up_superseded has_live_runner has_uncovered_input history_violations is_full job_definition
         jobs_append_revision jobs_check_values jobs_mark_editor jobs_number_revision jobs_record_deletion
         json_problem lease_refusal local_time lock_due_existing lock_job lock_limits lock_or_create_scope
         lock_stale masked masked_target max_steals merge_enqueued missing_grants other_database
         partition_is_busy present_violations queues_in_use raise_unknown_execution raise_unknown_job
         raise_unknown_scope rearm_after recent_violations record_pruned record_spec_error register_worker
         require_ledger require_own_database require_read_committed retire_other_kinds runners_mark_timeline
         scope_changes set_scopes settle_input settle_inputs settle_left_behind target_problem
         try_claim_existing', '[[:space:]]+');
    function regprocedure;
BEGIN
    -- Its owner could replace functions that run with the rights of the ledger's owner.
    IF (SELECT count(DISTINCT n.nspowner) FROM pg_namespace n
        WHERE n.nspname IN ('{schema}', '{schema}_internal')) > 1 THEN
        RAISE EXCEPTION 'the schemas {schema} and {schema}_internal have different owners'
            USING HINT = 'Drop the schema {schema}_internal, or change its owner.',
                  ERRCODE = 'invalid_schema_definition';
    END IF;
    FOR function IN SELECT p.oid FROM pg_proc p
                    WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname = ANY (internal) LOOP
        EXECUTE format('ALTER FUNCTION %s SET SCHEMA {schema}_internal', function);
    END LOOP;
    IF to_regtype('{schema}.claim_candidate') IS NOT NULL THEN
        ALTER TYPE {schema}.claim_candidate SET SCHEMA {schema}_internal;
    END IF;
END $$;
