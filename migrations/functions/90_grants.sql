-- The rights of the three group roles, in one place. Every function, table and view of both schemas has a
-- line here, also if no role gets a right; a test fails if a line is missing.
-- Rights are a step of their own, because roles may appear after the schema: `migrate` ends with
-- grant_roles() whether or not anything else was pending.

COMMENT ON FUNCTION {schema}.db_now() IS 'Returns the time of the ledger, at the start of the statement.';
COMMENT ON FUNCTION {schema}.db_clock() IS 'Returns the current instant of the clock of the ledger. Use it after a lock wait.';

-- Functions are named without their arguments: a right holds for all of one name.
CREATE OR REPLACE FUNCTION {schema}.decided_grants()
RETURNS TABLE (role text, privilege text, object text)
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'cronledger_' || nullif(r.name, ''), p.name, o.name
    FROM (VALUES
        -- Views, and functions that only read. None shows a payload, a target, or a lease token that is in use.
        ('viewer operator runner', 'SELECT',
            'ledger job_status running overdue recent_failures upcoming lateness runner_status crashes
             input_status attempts job_history violations present_violations verify_schedules verify_executions
             verify_skips accepted_violations execution_status job_details job_overview queue_status
             schema_migrations verifications execution_hours audit alerts alert_states channels missing_channels
              breaches compliance verify_breaches unjudged_deadlines deadline_progress'),
        ('viewer operator runner', 'EXECUTE',
            'history_violations recent_violations present_violations wrong_hours max_steals is_dirty has_label next_firings group_status
             queues_in_use preview_backfill'),
        ('operator runner', 'SELECT', 'execution_payloads job_targets'),
        -- Operator functions.
        ('operator', 'EXECUTE',
            'pause_queue resume_queue limit_queue pause_all resume_all accept_database
             accept_violation withdraw_acceptance'),
        ('operator runner', 'EXECUTE', 'record_refusal'),
        ('operator runner', 'EXECUTE',
            'trigger backfill pause resume retire cancel retry enqueue enqueue_many claim take_results'),
        -- The record of verify, which needs only the views.
        ('operator runner', 'EXECUTE', 'begin_verification end_verification'),
        -- Replicas. Locking a row needs the right to update it.
        ('runner', 'SELECT',
            'jobs job_revisions queues schedules executions skips runners sources identity scope_providers'),
        ('runner', 'INSERT UPDATE',
            'jobs queues schedules executions skips runners sources scope_providers'),
        ('runner', 'DELETE', 'runners'),
        ('runner', 'USAGE', 'execution_id'),
        ('runner', 'EXECUTE',
            'require_own_database require_ledger heartbeat_leases finish_executions release_executions
             rearm_unblocked claim_look lock_due_schedules lock_woken_schedules claim_due lock_due_existing lock_stale decide_existing try_claim_existing
             claim_existing refuse_start is_stale may_be_stolen job_room queue_room record_spec_error assert_lease scope_changes set_scopes settle_inputs
             settle_left_behind job_definition create_missing_partitions earliest_due parked_jobs
             unblocked_schedules left_behind maintain_partitions mark_changed_hours roll_up_hours prune_hours
             raise_alerts prune_alerts watches_alerts is_delivery_due'),
        -- Deadlines.
        ('runner', 'EXECUTE',
            'next_deadline lock_deadlines deadline_schedules deadline_revisions take_manual_deadlines add_deadlines
             advance_deadlines judge_deadlines close_breaches prune_breaches'),
        ('', 'EXECUTE', 'check_deadline jobs_wake_deadlines note_manual_deadlines deadline_facts'),
        ('', 'SELECT', 'deadline_cursors manual_deadlines deadlines deadline_breaches deadline_months'),
        ('', 'USAGE', 'breach_id'),
        -- Workers in other languages.
        ('runner', 'EXECUTE', 'claim_next heartbeat finish fail release'),
        -- Requirements of transactions.
        ('', 'EXECUTE', 'commit_durably'), ('runner', 'EXECUTE', 'require_read_committed'),
        -- The dates of edits, written at COMMIT.
        ('runner', 'EXECUTE', 'date_at_commit'), ('', 'EXECUTE', 'date_undated date_revision date_scopes'),
        ('', 'SELECT', 'undated'), ('', 'USAGE', 'undated_id'),
        -- The audit trail, which functions with the rights of their owner write.
        ('', 'SELECT', 'operator_actions actions_in_progress'), ('', 'USAGE', 'operator_action_id'),
        ('', 'EXECUTE', 'operator_verbs refuse_change record_action begin_action end_action jobs_record_edit queues_record_edit'),
        -- Alerts, which functions with the rights of their owner write.
        ('', 'SELECT', 'tracked_states raised_alerts alert_progress'), ('', 'USAGE', 'alert_id'),
        ('', 'EXECUTE',
            'check_notify remind_problem jobs_watch_alerts alert_rules ledger_channels write_alert flip_state observe_event
             unhandled_after observe_executions observe_breaches close_met_deadline close_met_deadlines has_unobserved observe_overdue observe_skips observe_runners
             observe_verifications is_scope_retired forget_states settle_states remind_of_states alert_values deliver_alerts'),
        -- No role: only functions that run with the rights of their owner call these.
        ('', 'EXECUTE',
            'covering_execution cancel_waiting check_acceptance check_backfill check_backoff check_json check_labels check_maintenance
             bucket_bounds hours_to_count check_due_at check_enqueue check_queue check_retry check_retry_filter check_runner check_scopes check_target check_traceparent check_trigger
             apply_overlap covered_watermark current_timeline jobs_check_values json_problem target_problem check_channel channel_problem
             drop_partition due_in_scope end_attempt free_plan_time give_up_superseded grant_roles
             create_role has_live_runner has_uncovered_input is_full backfill_actions jobs_append_revision jobs_mark_editor
             jobs_number_revision jobs_record_deletion lock_job lock_limits create_backfilled record_pruned
             check_items check_partition create_enqueued create_partition create_partitions create_message
             create_messages find_or_create_scope message_plan_time lock_scopes merge_enqueued retry_refusal
             lock_or_create_scope partition_is_busy rearm_after claim_refusal register_worker retire_other_kinds
             enqueue_dirty_scope runners_mark_timeline settle_input lease_refusal lock_lease raise_unknown_execution raise_unknown_job
             raise_unknown_scope'),
        ('', 'SELECT', 'acceptances pruned verification_runs rolled_up_hours changed_hours roll_up_state'),
        ('', 'USAGE', 'acceptance_id verification_id')
    ) d(roles, privileges, objects)
    CROSS JOIN LATERAL regexp_split_to_table(d.objects, '[[:space:]]+') o(name)
    CROSS JOIN LATERAL regexp_split_to_table(d.privileges, ' ') p(name)
    CROSS JOIN LATERAL regexp_split_to_table(d.roles, ' ') r(name)
    UNION ALL
    -- Whoever may use the schema: views call these.
    SELECT 'PUBLIC', 'EXECUTE', o.name
    FROM regexp_split_to_table(
        'db_now db_clock local_time partitions pruned_through other_database masked masked_channel masked_target decided_grants
         missing_grants estimated_quantile rolled_up_before execution_sums', '[[:space:]]+') o(name)
$$;
COMMENT ON FUNCTION {schema}.decided_grants() IS 'Returns the privileges of each group role on each object; functions are named without arguments. Role NULL: only the owner has the privilege.';

CREATE OR REPLACE FUNCTION {schema}_internal.missing_grants()
RETURNS TABLE (role text, statement text)
-- Each start of a replica and each `migrate` reads this. Compiling it takes a hundred times as long.
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH decided AS MATERIALIZED (
        SELECT g.role, g.privilege, g.object, r.oid AS role_oid
        FROM {schema}.decided_grants() g LEFT JOIN pg_roles r ON r.rolname = g.role
    ), functions AS MATERIALIZED (
        SELECT f.oid, f.proname AS name, f.oid::regprocedure::text AS signature FROM pg_proc f
        WHERE f.pronamespace IN ('{schema}'::regnamespace, '{schema}_internal'::regnamespace)
    )
    SELECT m.role, m.statement FROM (
        SELECT DISTINCT d.role, format('CREATE ROLE %I NOLOGIN', d.role) AS statement,
               1 AS place
        FROM decided d WHERE d.role_oid IS NULL AND d.role <> 'PUBLIC'
        UNION ALL
        -- PostgreSQL lets everybody execute a new function.
        SELECT DISTINCT 'PUBLIC', format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f.signature), 2
        FROM functions f JOIN decided d ON d.object = f.name AND d.privilege = 'EXECUTE'
        WHERE d.role IS DISTINCT FROM 'PUBLIC' AND has_function_privilege('public', f.oid, 'EXECUTE')
        UNION ALL
        SELECT 'PUBLIC', format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', f.signature), 2
        FROM functions f JOIN decided d ON d.object = f.name AND d.role = 'PUBLIC'
        WHERE NOT has_function_privilege('public', f.oid, 'EXECUTE')
        UNION ALL
        SELECT DISTINCT d.role, format('GRANT USAGE ON SCHEMA %I TO %I', s.name, d.role), 3
        FROM decided d CROSS JOIN (VALUES ('{schema}'), ('{schema}_internal')) s(name)
        WHERE NOT has_schema_privilege(d.role_oid, s.name, 'USAGE')
        UNION ALL
        -- A function that PUBLIC may still execute shows here once that is revoked.
        SELECT d.role, format('GRANT EXECUTE ON FUNCTION %s TO %I', f.signature, d.role), 3
        FROM decided d JOIN functions f ON f.name = d.object
        WHERE d.privilege = 'EXECUTE' AND NOT has_function_privilege(d.role_oid, f.oid, 'EXECUTE')
        UNION ALL
        SELECT d.role, format('GRANT %s ON %s {schema}.%I TO %I', d.privilege,
                              CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname, d.role), 3
        FROM decided d
        JOIN pg_class c ON c.relnamespace = '{schema}'::regnamespace AND c.relname = d.object
        WHERE d.privilege <> 'EXECUTE' AND CASE c.relkind
            WHEN 'S' THEN NOT has_sequence_privilege(d.role_oid, c.oid, d.privilege)
            ELSE NOT has_table_privilege(d.role_oid, c.oid, d.privilege) END
    ) m
    ORDER BY m.place, m.role, m.statement
$$;
COMMENT ON FUNCTION {schema}_internal.missing_grants() IS 'Returns the statements that give the group roles the missing rights of decided_grants(), and the role of each statement.';

CREATE OR REPLACE FUNCTION {schema}_internal.create_role(role text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE ROLE %I NOLOGIN', role);
    EXECUTE format('COMMENT ON ROLE %I IS %L', role, CASE role
        WHEN 'cronledger_viewer' THEN 'May read the views of cronledger.'
        WHEN 'cronledger_operator' THEN 'May read the views of cronledger and call its operator functions.'
        ELSE 'May do what a replica of cronledger does; changes no structure.' END);
    RETURN true;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN
        RETURN true;  -- a migration of another database of this server was quicker
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role % does not exist, and % may not create roles', role, current_user
            USING HINT = format('Run CREATE ROLE %I NOLOGIN as a role that may create roles, then run `cronledger migrate` again.', role);
        RETURN false;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_role(text) IS 'Creates a group role. If the caller may not create roles, raises a NOTICE and returns false.';

CREATE OR REPLACE FUNCTION {schema}.grant_roles() RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner   oid := (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = '{schema}');
    missing record;
BEGIN
    IF NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION 'role % may not grant rights in the schema {schema}', current_user
            USING HINT = format('Run this as the owner of the schema, %s.', owner::regrole),
                  ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}_internal.missing_grants()) THEN
        RETURN;  -- without waiting for a migration that is under way
    END IF;
    -- The lock of `migrate`: two at once would write the same rows of the catalog.
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema}.migrate', 0));
    -- The second pass grants what the first one made necessary: the rights of the roles that it created, and
    -- of the functions that it revoked from PUBLIC.
    FOR pass IN 1..2 LOOP
        FOR missing IN SELECT m.role, m.statement FROM {schema}_internal.missing_grants() m LOOP
            IF missing.statement NOT LIKE 'CREATE ROLE %' THEN
                EXECUTE missing.statement;
            ELSIF pass = 2 OR NOT {schema}_internal.create_role(missing.role) THEN
                CONTINUE;
            END IF;
            RETURN NEXT missing.statement;
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}.grant_roles() IS 'Creates the group roles if the caller may create roles, and grants them their rights in the schema as it is now. Returns the statements that it ran. The owner of the schema may call it at any time.';
