"""Deliberate mistakes in deadlines, sums by hour, alerts, the audit trail, the client and the page,
and in what keeps claims away from dead versions of rows.

The simulator runs none of these parts, or has no dead versions, so its own mutations (`tests/simulation/mutations.py`)
cannot show that they are tested. Each mistake here replaces one text of one file, and the test
that it names must fail.
"""

from dataclasses import dataclass

SQL = "migrations/functions/"
VIEWS = "migrations/views/"
SRC = "src/cronledger/"

BOUNDARIES = "tests/db/test_deadline_boundaries.py::"
DEADLINES = "tests/db/test_deadlines.py::"
HOURS = "tests/db/test_execution_hours.py::"
ALERTS = "tests/db/test_alerts.py::"
AUDIT = "tests/db/test_audit.py::"
WAIT = "tests/db/test_wait.py::"
NOTIFIED = "tests/db/test_wait_notified.py::"
ACCESS = "tests/web/test_access.py::"
EXECUTION = "tests/web/test_execution.py::"
TIMELINE = "tests/web/test_timeline.py::"
REDACT = "tests/db/test_redact.py::"
PINNED = "tests/db/test_pinned_horizon.py::"


class AnchorError(AssertionError):
    """The text that a mistake replaces is missing, or occurs more than once."""


@dataclass(frozen=True)
class Mistake:
    """`before` occurs once in `file`; with `after` in its place `test` fails."""

    name: str
    file: str
    test: str
    before: str
    after: str

    def made_in(self, text: str) -> str:
        """Return the text of the file with the mistake. Raises AnchorError."""
        found = text.count(self.before)
        if found != 1:
            raise AnchorError(f"{self.name}: {self.before!r} occurs {found} times in {self.file}")
        return text.replace(self.before, self.after)


def _of(file: str, *rows: tuple[str, str, str, str]) -> list[Mistake]:
    return [Mistake(name, file, test, before, after) for name, test, before, after in rows]


MISTAKES = [
    *_of(
        SQL + "deadlines/judge_deadlines.sql",
        ("a start exactly at start_by is missed",
         BOUNDARIES + "test_what_equals_its_limit_is_in_time[start_by]",
         "s.first_start <= s.deadline", "s.first_start < s.deadline"),
        ("a retired plan_time is missed",
         BOUNDARIES + "test_a_plan_time_that_was_skipped_on_purpose_has_missed_no_deadline",
         "IN ('paused', 'retired')", "IN ('paused')"),
        ("a paused plan_time is missed",
         BOUNDARIES + "test_a_plan_time_that_was_skipped_on_purpose_has_missed_no_deadline",
         "IN ('paused', 'retired')", "IN ('retired')"),
        ("an end exactly at finish_by is missed",
         BOUNDARIES + "test_what_equals_its_limit_is_in_time[finish_by]",
         "WHEN s.status = 'SUCCESS' AND s.finished_at <=",
         "WHEN s.status = 'SUCCESS' AND s.finished_at <"),
        ("a retry counts as the start",
         BOUNDARIES + "test_a_retry_does_not_change_when_an_execution_started",
         "CASE WHEN e.attempts = '[]' THEN e.started_at ELSE (e.attempts"
         " #>> '{0,started_at}')::timestamptz END", "e.started_at"),
        ("a cancel before start_by is missed",
         DEADLINES + "test_a_cancelled_execution_has_no_finish_by",
         "WHEN s.first_start IS NULL AND s.status = 'CANCELLED' AND s.finished_at <= s.deadline"
         " THEN 'void'", ""),
        ("a cancel after finish_by is void",
         BOUNDARIES + "test_a_cancel_after_finish_by_does_not_excuse_the_deadline",
         "s.status = 'CANCELLED' AND s.finished_at <= s.deadline THEN 'void'\n                ELSE"
         " 'missed' END\n            WHEN s.id",
         "s.status = 'CANCELLED' THEN 'void'\n                ELSE 'missed' END\n"
         "            WHEN s.id"),
        ("a duration equal to the expected one is missed",
         BOUNDARIES + "test_what_equals_its_limit_is_in_time[expect_duration]",
         "s.duration > s.expected", "s.duration >= s.expected"),
    ),
    *_of(
        SQL + "deadlines/add_deadlines.sql",
        ("failed executions count for the usual duration",
         BOUNDARIES + "test_the_usual_duration_is_that_of_successes_before_the_plan_time",
         "d.status = 'SUCCESS' AND ", ""),
        ("a deadline is judged at its instant",
         BOUNDARIES + "test_a_deadline_is_judged_a_second_after_it",
         "k.plan + k.expected) + interval '1 second'", "k.plan + k.expected)"),
        ("five durations are enough for the usual one",
         BOUNDARIES + "test_the_usual_duration_needs_20_successes_and_is_at_least_a_second",
         "count(*) >= 20", "count(*) >= 5"),
        ("all durations count for the usual one",
         BOUNDARIES + "test_the_usual_duration_is_that_of_successes_before_the_plan_time",
         "LIMIT 200", "LIMIT 20000"),
        ("the execution itself counts for its usual duration",
         DEADLINES + "test_a_run_is_compared_with_a_multiple_of_a_quantile_of_earlier_ones",
         "e.plan_time < g.first", "e.plan_time <= g.first"),
        ("the expected duration is not at least a second",
         BOUNDARIES + "test_the_usual_duration_needs_20_successes_and_is_at_least_a_second",
         "greatest(u.duration * n.factor, interval '1 second')", "u.duration * n.factor"),
        ("the cursor of deadlines falls",
         BOUNDARIES + "test_no_deadline_is_judged_again_after_the_clock_went_back",
         "through = greatest(c.through, u.through)",
         "through = u.through"),
        ("a pass does not continue after its last scope",
         DEADLINES + "test_many_scopes_are_planned_in_parts_by_any_replica",
         "(coalesce(after_kinds[i], ''), coalesce(after_ids[i], ''))", "('', '')"),
    ),
    *_of(
        SQL + "deadlines/wake_deadlines.sql",
        ("an edit does not wake the deadlines",
         DEADLINES + "test_a_broken_schedule_stops_no_other_job",
         "ON CONFLICT (job_name) DO UPDATE\n"
         "        SET next_at = EXCLUDED.next_at,"
         " following = CASE WHEN c.upto IS NOT NULL THEN EXCLUDED.next_at END",
         "ON CONFLICT DO NOTHING"),
        ("an edit in a pass is forgotten at its end",
         DEADLINES + "test_an_edit_in_a_pass_is_planned_after_it",
         "following = CASE WHEN c.upto IS NOT NULL THEN EXCLUDED.next_at END",
         "following = c.following"),
    ),
    *_of(
        SQL + "deadlines/close_breaches.sql",
        ("a late end counts as in time",
         DEADLINES + "test_a_start_in_time_is_met_and_a_late_one_is_closed",
         "FILTER (WHERE s.met_at > s.deadline) AS late",
         "FILTER (WHERE false) AS late"),
        ("a breach that is met stays counted as missed",
         DEADLINES + "test_a_start_in_time_is_met_and_a_late_one_is_closed",
         "missed = m.missed - c.late - c.in_time", "missed = m.missed"),
    ),
    *_of(
        SQL + "hours/roll_up_hours.sql",
        ("an hour is counted at once",
         BOUNDARIES + "test_an_hour_is_counted_five_minutes_after_its_end",
         "interval '5 minutes'", "interval '0 minutes'"),
        ("the first attempt counts as a retry",
         HOURS + "test_ended_executions_are_counted_when_their_hour_is_over",
         "sum(greatest(e.attempt - 1, 0)) AS retries", "sum(e.attempt) AS retries"),
        ("a retried start has a lateness",
         HOURS + "test_ended_executions_are_counted_when_their_hour_is_over",
         "SELECT CASE WHEN e.trigger = 'schedule' AND e.attempt = 1 THEN\n                greatest",
         "SELECT CASE WHEN e.trigger = 'schedule' THEN\n                greatest"),
        ("a manual start has a lateness",
         BOUNDARIES + "test_an_hour_does_not_contain_the_beginning_of_the_next_one",
         "SELECT CASE WHEN e.trigger = 'schedule' AND e.attempt = 1 THEN\n                greatest",
         "SELECT CASE WHEN e.attempt = 1 THEN\n                greatest"),
        ("an execution that awaits its retry is counted",
         HOURS + "test_a_change_after_the_roll_up_is_counted_again",
         "e.finished_at IS NOT NULL AND e.next_attempt_at IS NULL\n            GROUP BY",
         "e.finished_at IS NOT NULL\n            GROUP BY"),
        ("an hour contains the beginning of the next one",
         BOUNDARIES + "test_an_hour_does_not_contain_the_beginning_of_the_next_one",
         "e.plan_time < h.hour + interval '1 hour'", "e.plan_time <= h.hour + interval '1 hour'"),
        ("an hour without executions is kept",
         HOURS + "test_a_change_after_the_roll_up_is_counted_again",
         "AND h.number NOT IN (SELECT s.number FROM sums s)",
         "AND false"),
    ),
    *_of(
        SQL + "hours/execution_sums.sql",
        ("the rest of the sums contains the end of the range",
         BOUNDARIES + "test_an_hour_does_not_contain_the_beginning_of_the_next_one",
         "x.plan_time < p.last", "x.plan_time <= p.last"),
    ),
    *_of(
        SQL + "hours/mark_changed_hours.sql",
        ("a late commit is not marked",
         HOURS + "test_a_change_that_commits_late_is_not_missed",
         "SET marked_before = least(upto, horizon)",
         "SET marked_before = coalesce(upto, last)"),
    ),
    *_of(
        SQL + "hours/prune_hours.sql",
        ("hours of pruned executions are kept",
         HOURS + "test_hours_are_pruned_with_their_executions",
         "o.hour <= (SELECT p.through", "o.hour < '-infinity' AND o.hour <= (SELECT p.through"),
    ),
    *_of(
        SQL + "alerts/flip_state.sql",
        ("an alert is raised one failure late",
         ALERTS + "test_ends_raise_alerts[failed opens after as many failures in a row]",
         "state.count >= after THEN", "state.count > after THEN"),
        ("a paused job raises alerts",
         ALERTS + "test_a_paused_job_raises_nothing_until_its_resume",
         "    IF paused THEN\n        RETURN;\n    END IF;\n", ""),
        ("a rule without recovered reports the end",
         ALERTS + "test_ends_raise_alerts[a rule without recovered has no end]",
         "state.since IS NOT NULL AND closes THEN", "state.since IS NOT NULL THEN"),
        ("a rule without failed reports the beginning",
         ALERTS + "test_ends_raise_alerts[a rule without failed has no beginning]",
         "        IF opens THEN\n            PERFORM {schema}_internal.write_alert(state, 'opened');\n"
         "        END IF;", "        PERFORM {schema}_internal.write_alert(state, 'opened');"),
        ("the end of failed has the event failed",
         ALERTS + "test_ends_raise_alerts[a failure opens and a success closes]",
         "CASE WHEN state.event = 'failed' AND kind = 'closed' THEN 'recovered' ELSE state.event END",
         "state.event"),
    ),
    *_of(
        SQL + "alerts/alert_rules.sql",
        ("of several rules the last one holds",
         ALERTS + "test_ends_raise_alerts"
         "[of several rules for an event and a channel the first one holds]",
         "e.state, r.place\n", "e.state, r.place DESC\n"),
        ("a retired job has rules",
         ALERTS + "test_the_end_of_a_rule_closes_its_states_silently",
         "j.notify IS NOT NULL AND j.retired_at IS NULL AND",
         "j.notify IS NOT NULL AND"),
    ),
    *_of(
        SQL + "alerts/observe_executions.sql",
        ("a late commit raises no alert",
         ALERTS + "test_an_end_is_observed_when_it_becomes_visible",
         "    left_   constant xid8[] := ARRAY(SELECT pg_snapshot_xip(handled));",
         "    left_   constant xid8[] := '{}';"),
        ("an execution that awaits its retry has failed",
         ALERTS + "test_a_failure_that_is_retried_raises_nothing",
         "AND e.next_attempt_at IS NULL AND e.finished_at >= from_at", "AND e.finished_at >= from_at"),
        ("a start exactly at the end of grace is late",
         ALERTS + "test_a_late_start_opens_and_a_start_in_time_closes",
         "(found.first_start > found.due_at + found.grace)::integer",
         "(found.first_start >= found.due_at + found.grace)::integer"),
    ),
    *_of(
        SQL + "alerts/remind_of_states.sql",
        ("a paused job sends reminders",
         ALERTS + "test_a_paused_job_raises_nothing_until_its_resume",
         "r.opens AND NOT r.paused", "r.opens"),
    ),
    *_of(
        SQL + "alerts/observe_skips.sql",
        ("a superseded plan_time is an alert",
         ALERTS + "test_skips_that_were_intended_raise_nothing",
         "x.reason IN ('overlap', 'missed') AND x.changed_xact >=",
         "x.reason IN ('overlap', 'missed', 'superseded') AND x.changed_xact >="),
    ),
    *_of(
        SQL + "alerts/observe_runners.sql",
        ("a worker in another language is lost",
         ALERTS + "test_a_worker_that_claims_nothing_more_is_not_lost",
         " AND r.version <> 'external'", ""),
    ),
    *_of(
        SQL + "alerts/observe_verifications.sql",
        ("a run of verify for one job closes the violation of all",
         ALERTS + "test_violations_of_several_runs_hold_until_one_run_has_checked_all",
         "AND coalesce(found.job_name = t.details ->> 'job', found.job_name IS NULL)", ""),
    ),
    *_of(
        SQL + "alerts/settle_states.sql",
        ("a retired scope keeps its state",
         ALERTS + "test_an_execution_of_a_retired_scope_that_waits_raises_nothing_twice",
         "WHERE t.job_name <> '' AND t.event <> 'skipped'\n      AND", "WHERE false\n      AND"),
        ("what was counted during a pause is forgotten",
         ALERTS + "test_a_paused_job_raises_nothing_until_its_resume",
         "WHERE NOT r.paused AND (t.since IS NULL AND", "WHERE false AND (t.since IS NULL AND"),
    ),
    *_of(
        SQL + "operators/redact.sql",
        ("a redaction misses the alert of a step that has not ended",
         REDACT + "test_the_alert_of_a_step_that_has_not_ended_is_redacted_too",
         "    PERFORM {schema}_internal.await_turn('alerts');\n", ""),
    ),
    *_of(
        SQL + "audit_trail/record_action.sql",
        ("an operator function records its edits twice",
         AUDIT + "test_each_function_leaves_one_row",
         "WHERE p.xact = pg_current_xact_id()) THEN", "WHERE false) THEN"),
        ("the actor is the login",
         AUDIT + "test_each_function_leaves_one_row",
         "coalesce(requested_by, session_user), verb",
         "session_user, verb"),
    ),
    *_of(
        SQL + "audit_trail/record_edits.sql",
        ("the end of a pause by itself is recorded as an edit",
         AUDIT + "test_replicas_write_none",
         "NEW.paused_at IS NULL AND OLD.paused_until <= {schema}.db_clock()", "false"),
        ("an edit without an editor has the previous one",
         AUDIT + "test_edits_by_sql_are_recorded",
         "    IF NEW.revision <> OLD.revision OR NEW.edited_by IS DISTINCT FROM OLD.edited_by THEN\n"
         "        editor := NEW.edited_by;\n    END IF;", "    editor := NEW.edited_by;"),
        ("a new spec_error is recorded as an edit",
         AUDIT + "test_each_edited_job_has_a_row_and_an_unchanged_one_has_none",
         "ARRAY['revision', 'edited_by', 'spec_error', 'deploy']",
         "ARRAY['revision', 'edited_by', 'deploy']"),
    ),
    *_of(
        "migrations/triggers.sql",
        ("the trail can be truncated",
         AUDIT + "test_rows_are_never_changed",
         "BEFORE UPDATE OR DELETE OR TRUNCATE",
         "BEFORE UPDATE OR DELETE"),
    ),
    *_of(
        SQL + "audit_trail/record_refusal.sql",
        ("a refusal records the payload",
         AUDIT + "test_a_refusal_has_no_payload_also_if_it_is_a_text",
         "a.key NOT IN ('payload', 'reason', 'requested_by')",
         "a.key NOT IN ('reason', 'requested_by')"),
    ),
    *_of(
        SRC + "client/waiting.py",
        ("wait without a timeout ends",
         WAIT + "test_it_waits_for_a_replica_and_its_retries",
         "if self._timeout is None:", "if self._timeout == 0:"),
        ("wait does not announce itself",  # the test fails after two minutes
         NOTIFIED + "test_a_wait_is_announced_again_before_replicas_forget_it[tasks]",
         "if pauses.announces(patience.waited):", "if False:"),
        ("wait in a transaction is not refused",
         WAIT + "test_inside_a_transaction_it_is_refused",
         "    sender.require_no_transaction()\n", ""),
    ),
    *_of(
        SRC + "web/access/identity.py",
        ("a reader of the page acts on it", ACCESS + "test_a_viewer_acts_on_nothing",
         "return self.role is Role.OPERATOR", "return True"),
    ),
    *_of(
        SRC + "web/gate.py",
        ("another site acts through the page",
         ACCESS + "test_a_foreign_origin_changes_nothing",
         "if method not in SAFE_METHODS:\n", "if False:\n"),
        ("next may lead to another site",
         ACCESS + "test_the_form_leads_to_no_other_site",
         'text.startswith(("//", "/\\\\"))', "False"),
    ),
    *_of(
        SRC + "web/redaction.py",
        ("a hidden name is compared with its case",
         EXECUTION + "test_the_settings_name_what_is_hidden",
         "return name.casefold() in self._names", "return name in self._names"),
        ("hidden values in lists are shown",
         EXECUTION + "test_the_settings_name_what_is_hidden",
         "return [self.shown(part, instead) for part in value] if isinstance(value, list) else value",
         "return value"),
    ),
    *_of(
        SRC + "rules/instants.py",
        ("an instant without an offset has the zone of the host",
         TIMELINE + "test_an_instant_without_an_offset_is_utc_whatever_the_zone_of_the_host",
         "found.replace(tzinfo=zone)", "found.astimezone()"),
    ),
    *_of(
        SQL + "claiming/claim_existing.sql",
        ("an older execution is claimed below running_from",
         PINNED + "test_an_old_execution_that_is_claimed_again_still_blocks",
         "PERFORM {schema}_internal.lower_running_from(chosen);\n", ""),
    ),
    *_of(
        SQL + "claiming/claim_look.sql",
        ("a claim searches the index of due schedules from its beginning",
         PINNED + "test_a_schedule_below_the_low_water_mark_is_found_by_a_check_in",
         "AND s.next_due_at >= coalesce(due_from, '-infinity')", ""),
        ("a claim searches all RUNNING executions of a schedule",
         PINNED + "test_claims_and_finishes_read_no_dead_versions",
         " AND e.plan_time >= coalesce(s.running_from, '-infinity')", ""),
    ),
    *_of(
        SRC + "ledger/sql/advance_schedules.sql",
        ("a cursor is found by its key",
         PINNED + "test_claims_and_finishes_read_no_dead_versions",
         "IS NOT DISTINCT FROM (u.job", "= (u.job"),
    ),
    *_of(
        SRC + "engine/claiming/dispatcher.py",
        ("a check-in does not reset the low-water mark",
         PINNED + "test_a_schedule_below_the_low_water_mark_is_found_by_a_check_in",
         "self.due_from is not None and reply.due < self.due_from", "False"),
    ),
]  # fmt: skip
