-- All triggers. Triggers of one table and kind fire in the order of their names: follow_upstreams, mark_editor,
-- number_revision; and record_edit and touch_dependents after append_revision and record_deletion.
-- A trigger is created only where it is missing, because creating one waits for every writer of its table. To change a
-- trigger, drop it in a numbered migration. The tables are in the order in which operator functions lock them.
DO $triggers$
DECLARE
    made record;
BEGIN
    FOR made IN
        SELECT t.* FROM (VALUES
            ('queues', 'check_new_name', 'BEFORE INSERT', 'check_new_name',
                'FOR EACH ROW WHEN ({schema}_internal.name_problem(NEW.name) IS NOT NULL)'),
            ('queues', 'record_edit', 'AFTER INSERT OR UPDATE OR DELETE', 'queues_record_edit', 'FOR EACH ROW'),
            ('calendars', 'refuse_deletion', 'BEFORE DELETE', 'refuse_used_calendar', 'FOR EACH ROW'),
            ('jobs', 'order_edits',
                'BEFORE INSERT OR DELETE OR UPDATE OF after, requires, schedule, timezone, calendar, on_excluded, day_or, dst_gap,'
                ' dst_fold, starts_at, ends_at, scope_kind, retired_at', 'jobs_order_edits', 'FOR EACH STATEMENT'),
            ('jobs', 'check_values', 'BEFORE INSERT OR UPDATE', 'jobs_check_values', 'FOR EACH ROW'),
            ('jobs', 'follow_upstreams', 'BEFORE INSERT OR UPDATE', 'jobs_follow_upstreams', 'FOR EACH ROW'),
            ('jobs', 'mark_editor', 'BEFORE UPDATE OF edited_by', 'jobs_mark_editor', 'FOR EACH ROW'),
            ('jobs', 'number_revision', 'BEFORE INSERT OR UPDATE', 'jobs_number_revision', 'FOR EACH ROW'),
            ('jobs', 'append_revision', 'AFTER INSERT OR UPDATE', 'jobs_append_revision', 'FOR EACH ROW'),
            ('jobs', 'record_deletion', 'AFTER DELETE', 'jobs_record_deletion', 'FOR EACH ROW'),
            ('jobs', 'record_edit', 'AFTER INSERT OR UPDATE OR DELETE', 'jobs_record_edit', 'FOR EACH ROW'),
            ('jobs', 'touch_dependents', 'AFTER INSERT OR UPDATE OR DELETE', 'jobs_touch_dependents', 'FOR EACH ROW'),
            ('jobs', 'wake_deadlines', 'AFTER INSERT OR UPDATE', 'jobs_wake_deadlines', 'FOR EACH ROW'),
            ('jobs', 'watch_alerts', 'AFTER INSERT OR UPDATE', 'watch_alerts',
                'FOR EACH ROW WHEN (NEW.notify <> ''[]'')'),
            ('schedules', 'check_new_name', 'BEFORE INSERT', 'check_new_name',
                'FOR EACH ROW WHEN ({schema}_internal.name_problem(NEW.scope_id) IS NOT NULL)'),
            ('schedules', 'keep_key', 'BEFORE INSERT', 'keep_schedule_key', 'FOR EACH ROW'),
            ('schedules', 'keep_changed_key', 'BEFORE UPDATE OF job_name, scope_kind, scope_id', 'keep_schedule_key',
                'FOR EACH ROW'),
            ('schedules', 'keep_deleted_key', 'AFTER DELETE', 'keep_schedule_key', 'FOR EACH ROW'),
            ('schedules', 'keep_no_key', 'AFTER TRUNCATE', 'keep_schedule_key', 'FOR EACH STATEMENT'),
            ('runners', 'mark_timeline', 'BEFORE INSERT OR UPDATE OF heartbeat_at', 'runners_mark_timeline',
                'FOR EACH ROW'),
            ('channels', 'check_values', 'BEFORE INSERT OR UPDATE', 'channels_check_values', 'FOR EACH ROW'),
            ('channels', 'record_edit', 'AFTER INSERT OR UPDATE OR DELETE', 'channels_record_edit', 'FOR EACH ROW'),
            ('channels', 'watch_alerts', 'AFTER INSERT', 'watch_alerts', 'FOR EACH ROW'),
            ('sources', 'record_edit', 'AFTER UPDATE OF host', 'sources_record_edit',
                'FOR EACH ROW WHEN (OLD.host IS NOT NULL AND NEW.host IS DISTINCT FROM OLD.host)'),
            ('operator_actions', 'refuse_change', 'BEFORE UPDATE OR DELETE OR TRUNCATE', 'refuse_change',
                'FOR EACH STATEMENT'),
            ('undated', 'date_at_commit', 'AFTER INSERT OR UPDATE', 'date_undated',
                'DEFERRABLE INITIALLY DEFERRED FOR EACH ROW')
        ) t(of_table, name, event, function, level)
        UNION ALL
        -- Not on runners, hosts, turns and scope_providers, whose rows are renewed all the time, not on gates, which change beside
        -- executions, or for a check that the sweeper repeats, not on execution_progress, which travels with heartbeats,
        -- not on output_chunks, whose loss harms nothing, not on schedule_keys, which a trigger of schedules writes, and
        -- not on undated and actions_in_progress, which are always empty.
        SELECT d.name, 'commit_durably', 'BEFORE INSERT OR UPDATE OR DELETE', 'commit_durably', 'FOR EACH STATEMENT'
        FROM regexp_split_to_table(
            'queues calendars calendar_revisions jobs pauses unsettled_pauses job_revisions schedules executions windows skips sources identity pruned acceptances
             verification_runs rolled_up_hours changed_hours roll_up_state operator_actions tracked_states
             raised_alerts alert_progress channels deliveries deadline_cursors manual_deadlines deadlines deadline_breaches
             deadline_months page_sessions saved_views scope_retirements host_absences host_boots planned_skips retention reports
             report_tokens',
            '[[:space:]]+') d(name)
    LOOP
        IF NOT EXISTS (SELECT FROM pg_trigger t
                       WHERE t.tgrelid = format('{schema}.%I', made.of_table)::regclass AND t.tgname = made.name) THEN
            EXECUTE format('CREATE %s %I %s ON {schema}.%I %s EXECUTE FUNCTION {schema}_internal.%I()',
                           CASE WHEN made.level LIKE 'DEFERRABLE%' THEN 'CONSTRAINT TRIGGER' ELSE 'TRIGGER' END,
                           made.name, made.event, made.of_table, made.level, made.function);
        END IF;
    END LOOP;
END $triggers$;
