-- The rights of the three group roles, in one place. Every function, table and view of both schemas has a
-- line here, also if no role gets a right; a test fails if a line is missing.
-- Rights are a step of their own, because roles may appear after the schema: `migrate` ends with
-- grant_roles() whether or not anything else was pending.

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
             schema_migrations verifications execution_hours audit alerts alert_states channel_status delivery_status missing_channels
              pause_status job_pauses breaches compliance verify_breaches unjudged_deadlines deadline_progress scope_retirements planned_skips planned_skip_status source_status retention_status
              calendars calendar_revisions gates windows running_output report_status report_token_status'),
        ('viewer operator runner', 'EXECUTE',
            'history_violations window_violations may_be_stolen loop_errors missing_runner recent_violations present_violations wrong_hours max_steals is_dirty has_label job_state next_firings group_status
             queues_in_use preview_adopt preview_backfill late_steps unconfirmed_failover may_be_observed scope_host'),
        ('operator runner', 'SELECT', 'execution_payloads job_targets'),
        -- Sessions of the web page.
        ('viewer operator runner', 'EXECUTE', 'begin_page_session page_session end_page_session'),
        ('', 'SELECT', 'page_sessions'),
        -- Views that people saved on the web page.
        ('viewer operator runner', 'EXECUTE', 'save_view delete_view'),
        ('viewer operator runner', 'SELECT', 'saved_views'),
        ('', 'EXECUTE', 'check_view'),
        -- Operator functions.
        ('operator', 'EXECUTE',
            'plan_pause change_pause end_pause pause_queue resume_queue limit_queue pause_all resume_all accept_database refuse_database
             rename_source retire_host accept_violation withdraw_acceptance redact_revisions set_retention'),
        ('operator runner', 'EXECUTE', 'record_refusal'),
        ('operator runner', 'EXECUTE',
            'adopt trigger backfill pause resume skip unskip retire cancel cancel_many retry retry_many redact enqueue enqueue_many take_results set_calendar
             pause_channel resume_channel test_channel retry_delivery'),
        -- The record of verify, which needs only the views.
        ('operator runner', 'EXECUTE', 'begin_verification end_verification'),
        -- Replicas. Locking a row needs the right to update it.
        ('runner', 'SELECT',
            'jobs job_revisions queues schedules executions skips runners sources identity scope_providers turns
             retention channels deliveries execution_progress'),
        ('runner', 'INSERT UPDATE',
            'gates jobs queues schedules executions skips runners sources scope_providers turns channels execution_progress'),
        ('runner', 'UPDATE', 'deliveries'),
        ('runner', 'DELETE', 'runners channels'),
        ('runner', 'INSERT', 'windows'),
        ('runner', 'SELECT INSERT UPDATE DELETE', 'output_chunks'), ('runner', 'EXECUTE', 'take_output'),
        ('runner', 'USAGE', 'execution_id'),
        ('runner', 'EXECUTE',
            'require_own_database require_ledger heartbeat_leases store_progress finish_executions release_executions postpone_executions
             rearm_unblocked claim_look lock_due_schedules lock_woken_schedules claim_due lock_due_existing lock_stale decide_existing try_claim_existing
             claim_existing begin_windows next_window record_windows lower_running_from refuse_start is_stale may_be_execution job_room queue_room open_queues waiting_jobs woken_jobs next_schedule next_waiting
             record_spec_error assert_lease scope_changes retired_since set_scopes settle_inputs
             settle_left_behind job_definition job_policies create_missing_partitions earliest_due parked_jobs analyzed_while_empty
             unblocked_schedules left_behind maintain_partitions mark_changed_hours roll_up_hours prune_hours redact_outputs
             raise_alerts prune_alerts watches_alerts is_delivery_due delivery_message take_turn'),
        -- Hosts. A claim that records an absence locks the host.
        ('runner', 'EXECUTE', 'has_live_runner host_of note_host note_boot is_reboot hosts_with absent_hosts absent_schedules hosts_changed follow_hosts'),
        ('runner', 'INSERT UPDATE', 'hosts host_boots'), ('runner', 'INSERT', 'host_absences'),
        ('viewer operator runner', 'SELECT', 'hosts host_absences host_boots host_status'),
        ('runner', 'EXECUTE', 'wake_gates lock_gates settle_gates unblocked_gates is_planned'),
        -- Pauses. Claims read them, and begin those that are due.
        ('runner', 'SELECT', 'pauses unsettled_pauses'),
        ('runner', 'EXECUTE', 'begin_pauses settle_pauses'),
        ('', 'EXECUTE',
            'pause_in_force record_job_pause apply_pauses compare_pauses unsettle_jobs
             take_up_pauses check_pause pause_arguments lock_pause nothing_planned_after'),
        ('', 'USAGE', 'pause_id unsettled_pause_id'),
        ('viewer operator runner', 'EXECUTE', 'pause_covers is_wide'),
        ('', 'EXECUTE', 'check_runner_labels labels_of_live'),
        -- Deadlines.
        ('runner', 'EXECUTE',
            'next_deadline lock_deadlines deadline_schedules deadline_revisions take_manual_deadlines add_deadlines
             advance_deadlines judge_deadlines close_breaches prune_breaches'),
        ('', 'EXECUTE', 'jobs_wake_deadlines note_manual_deadlines deadline_facts jobs_to_settle'),
        ('', 'SELECT', 'deadline_cursors manual_deadlines deadlines deadline_breaches deadline_months'),
        ('', 'USAGE', 'breach_id'),
        -- Workers in other languages.
        ('runner', 'EXECUTE', 'claim claim_next heartbeat progress finish fail release not_ready upstream'),
        -- Reports of observed jobs.
        ('operator runner', 'EXECUTE', 'observe_start observe_end hand_over'),
        ('runner', 'SELECT UPDATE', 'reports'),
        ('operator', 'EXECUTE', 'create_report_token revoke_report_token report_token_job report_by_token'),
        ('', 'SELECT', 'report_tokens'), ('', 'USAGE', 'report_token_id'),
        ('runner', 'EXECUTE', 'unmatched_reports record_reports reported_outcome'),
        ('', 'EXECUTE', 'replica_times lock_observed check_report wake_observed end_observed refuse_observed'), ('', 'USAGE', 'report_id'),
        -- Requirements of transactions.
        ('', 'EXECUTE', 'commit_durably'), ('runner', 'EXECUTE', 'require_read_committed'),
        -- The dates of edits, written at COMMIT.
        ('runner', 'EXECUTE', 'date_at_commit'), ('', 'EXECUTE', 'date_undated date_revision date_scopes record_retirements'),
        ('', 'SELECT', 'undated schedule_keys'), ('', 'USAGE', 'undated_id'),
        -- The audit trail, which functions with the rights of their owner write.
        ('', 'SELECT', 'operator_actions actions_in_progress'), ('', 'USAGE', 'operator_action_id'),
        ('', 'EXECUTE', 'operator_verbs refuse_change record_action begin_action end_action jobs_record_edit queues_record_edit channels_record_edit sources_record_edit'),
        -- Alerts, which functions with the rights of their owner write.
        ('', 'SELECT', 'tracked_states raised_alerts alert_progress'), ('', 'USAGE', 'alert_id delivery_id'),
        ('', 'EXECUTE',
            'check_notify observe_failing_runners remind_problem watch_alerts alert_rules ledger_channels despite_leap write_alert flip_state observe_event
             unhandled_after observe_executions observe_breaches close_met_deadline close_met_deadlines has_unobserved observe_overdue observe_skips observe_runners
             observe_verifications is_scope_retired forget_states settle_states remind_of_states deliver_alerts'),
        -- No role: only functions that run with the rights of their owner call these.
        ('', 'EXECUTE',
            'timing_columns job_timing gates_of dependents_of checked_requirements requirement_problem jobs_follow_upstreams
             jobs_touch_dependents order_edits jobs_order_edits calendar_in_force check_calendar check_calendar_source refuse_used_calendar use_calendar
             covering_execution cancel_waiting check_window check_acceptance check_backfill check_backoff check_json check_maintenance
             await_turn bucket_bounds hours_to_count check_due_at check_enqueue check_execution_ids cancel_outcome record_many act_on_many retry_one check_queue check_retry check_runner check_scopes check_target check_traceparent check_trigger
             apply_overlap check_skip lock_schedules wake_schedules covered_watermark current_timeline jobs_check_values json_problem channels_check_values channel_problem
             drop_partition gone_since due_in_scope end_attempt free_plan_time give_up_superseded grant_roles
             create_role has_uncovered_input is_full backfill_actions jobs_append_revision jobs_mark_editor
             jobs_number_revision jobs_record_deletion lock_job lock_limits create_backfilled record_pruned
             check_items check_partition create_enqueued create_partition create_partitions create_message
             create_messages find_or_create_scope message_plan_time lock_scopes merge_enqueued retry_refusal
             lock_or_create_scope partition_is_busy rearm_after claim_refusal register_worker retire_other_kinds
             enqueue_dirty_scope runners_mark_timeline settle_input lease_refusal lock_lease raise_unknown_execution raise_unknown_job raise_unknown_channel
             raise_unknown_scope has_data redact_alerts redact_executions redacted_value is_redactable
             is_gated check_name check_new_name keep_schedule_key forget_statistics'),
        -- The condition of a trigger.
        ('runner', 'EXECUTE', 'name_problem'),
        ('', 'SELECT', 'acceptances pruned verification_runs rolled_up_hours changed_hours roll_up_state'),
        ('', 'USAGE', 'acceptance_id planned_skip_id verification_id')
    ) d(roles, privileges, objects)
    CROSS JOIN LATERAL regexp_split_to_table(d.objects, '[[:space:]]+') o(name)
    CROSS JOIN LATERAL regexp_split_to_table(d.privileges, ' ') p(name)
    CROSS JOIN LATERAL regexp_split_to_table(d.roles, ' ') r(name)
    UNION ALL
    -- Whoever may use the schema: views call these.
    SELECT 'PUBLIC', 'EXECUTE', o.name
    FROM regexp_split_to_table(
        'db_now db_clock local_time utc_text partitions pruned_through other_database masked masked_channel masked_target decided_grants
         missing_grants estimated_quantile rolled_up_before execution_sums', '[[:space:]]+') o(name)
$$;
COMMENT ON FUNCTION {schema}.decided_grants() IS 'Returns the privileges of each group role on each object; functions are named without arguments. Role NULL: only the owner has the privilege.';
