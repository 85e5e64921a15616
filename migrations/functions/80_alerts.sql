-- Alerts: states of (job, scope) and of the ledger, the edges of these states, and their deliveries.
--
-- raise_alerts() is one function, and so one transaction: it observes what has changed since the last call, flips
-- states, writes an alert for each edge, creates the executions that deliver the alerts, and moves its cursor. A
-- crash repeats all of it or nothing. One process at a time runs it (an advisory lock); any other takes over.
-- The cursor is a snapshot (alert_progress.handled): a change is new if its transaction is not visible in it, and is
-- visible now. So a long transaction, which holds back the oldest visible number, delays no alert, and each change is
-- observed exactly once. Only the numbers from the end of that snapshot on, and those that were in progress in it,
-- are searched for.
-- Lock: rows of its own tables and of verification_runs, and nothing of queues, jobs, schedules and executions. It
-- inserts executions as create_message does, which takes no lock.

CREATE OR REPLACE FUNCTION {schema}_internal.check_notify(job text, queue text, notify jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    events constant text[] := '{failed,recovered,overdue,late,skipped,deadline}';
    rule   jsonb;
    bad    text;
BEGIN
    -- Anything else is refused by a constraint of the table.
    IF jsonb_typeof(notify) <> 'array' THEN
        RETURN;
    END IF;
    IF queue = 'alerts' AND notify <> '[]' THEN
        RAISE EXCEPTION 'job %: notify is set, but the job is in the queue alerts, whose jobs raise no alerts', job
            USING HINT = 'Remove notify, or move the job to another queue.', ERRCODE = 'invalid_parameter_value';
    END IF;
    IF jsonb_array_length(notify) > 20 THEN
        bad := format('has %s rules; the limit is 20', jsonb_array_length(notify));
    END IF;
    FOR rule IN SELECT r.value FROM jsonb_array_elements(notify) r LOOP
        EXIT WHEN bad IS NOT NULL;
        IF jsonb_typeof(rule) <> 'object' THEN
            bad := format('contains %s', left(rule::text, 80));
        ELSIF EXISTS (SELECT FROM jsonb_object_keys(rule) k WHERE k NOT IN ('channel', 'on', 'after', 'remind')) THEN
            bad := format('has the unknown key %s', (SELECT min(k) FROM jsonb_object_keys(rule) k
                                                     WHERE k NOT IN ('channel', 'on', 'after', 'remind')));
        ELSIF coalesce(jsonb_typeof(rule -> 'channel') <> 'string', true)
              OR rule ->> 'channel' !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$' THEN
            bad := format('has channel = %s', coalesce(left((rule -> 'channel')::text, 80), 'nothing'));
        ELSIF rule ? 'on' AND (jsonb_typeof(rule -> 'on') <> 'array' OR rule -> 'on' = '[]'
              OR NOT to_jsonb(events) @> (rule -> 'on')) THEN
            bad := format('has on = %s', left((rule -> 'on')::text, 80));
        ELSIF rule ? 'after' AND NOT coalesce(
                jsonb_typeof(rule -> 'after') = 'number' AND rule ->> 'after' ~ '^[1-9][0-9]{0,3}$', false) THEN
            bad := format('has after = %s', left((rule -> 'after')::text, 80));
        ELSIF {schema}_internal.remind_problem(rule -> 'remind') THEN
            bad := format('has remind = %s', left((rule -> 'remind')::text, 80));
        END IF;
    END LOOP;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'job %: notify %', job, bad
            USING HINT = 'Write at most 20 rules such as [{"channel": "ops", "on": ["failed", "recovered"], "after": 3, "remind": "4 hours"}]. channel: a name of letters, digits and . _ -; on: failed, recovered, overdue, late, skipped, deadline; after: 1 to 9999; remind: an interval of at least 1 minute and at most 36525 days, or null.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_notify(text, text, jsonb) IS 'Raises unless these are valid rules for the alerts of a job in this queue.';

CREATE OR REPLACE FUNCTION {schema}_internal.remind_problem(remind jsonb) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE coalesce(jsonb_typeof(remind), 'null') WHEN 'null' THEN false
        WHEN 'string' THEN (remind #>> '{}')::interval NOT BETWEEN interval '1 minute' AND interval '36525 days'
        ELSE true END;
EXCEPTION WHEN data_exception THEN
    RETURN true;
END $$;
COMMENT ON FUNCTION {schema}_internal.remind_problem(jsonb) IS 'Returns whether this is not a valid interval between reminders. NULL is valid: there are no reminders.';

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_watch_alerts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Only the first of them waits for another transaction, and nothing from before it raises alerts.
    IF (NEW.notify <> '[]' OR NEW.queue = 'alerts')
            AND EXISTS (SELECT FROM {schema}.alert_progress p WHERE NOT p.watching) THEN
        UPDATE {schema}.alert_progress
        SET watching = true, handled = pg_current_snapshot(), since = {schema}.db_clock(), next_at = '-infinity'
        WHERE NOT watching;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_watch_alerts() IS 'Runs after a write to jobs. Makes replicas call raise_alerts() once a job has notify, or a channel exists.';
CREATE OR REPLACE TRIGGER watch_alerts AFTER INSERT OR UPDATE ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}_internal.jobs_watch_alerts();

CREATE OR REPLACE FUNCTION {schema}_internal.alert_rules(OUT job_name text, OUT channel text, OUT event text,
    OUT after bigint, OUT remind interval, OUT opens boolean, OUT closes boolean, OUT paused boolean, OUT owner text,
    OUT labels jsonb, OUT grace interval)
RETURNS SETOF record LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Of several rules for one event and channel, the first one holds. recovered is the end of failed.
    SELECT DISTINCT ON (j.name, r.rule ->> 'channel', e.state)
           j.name, r.rule ->> 'channel', e.state,
           CASE e.state WHEN 'failed' THEN coalesce((r.rule ->> 'after')::bigint, 1) ELSE 1 END,
           (r.rule ->> 'remind')::interval, e.state <> 'failed' OR o.events ? 'failed',
           e.state <> 'failed' OR o.events ? 'recovered',
           coalesce(j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true), false)
               OR EXISTS (SELECT FROM {schema}.queues q WHERE q.name = j.queue AND q.paused_at IS NOT NULL),
           j.owner, j.labels, j.grace
    FROM {schema}.jobs j
    CROSS JOIN LATERAL jsonb_array_elements(j.notify) WITH ORDINALITY r(rule, place)
    CROSS JOIN LATERAL (SELECT coalesce(r.rule -> 'on', '["failed", "recovered"]') AS events) o
    CROSS JOIN LATERAL (SELECT DISTINCT CASE x.name WHEN 'recovered' THEN 'failed' ELSE x.name END AS state
                        FROM jsonb_array_elements_text(o.events) x(name)) e
    WHERE j.notify IS NOT NULL AND j.retired_at IS NULL AND j.queue <> 'alerts'
    ORDER BY j.name, r.rule ->> 'channel', e.state, r.place
$$;
COMMENT ON FUNCTION {schema}_internal.alert_rules() IS 'Returns the rules of all jobs that are not retired: one row for each job, channel and event whose state is tracked.';

CREATE OR REPLACE FUNCTION {schema}_internal.ledger_channels(of_event text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(substr(j.name, 8) ORDER BY j.name), '{}') FROM {schema}.jobs j
    WHERE j.queue = 'alerts' AND j.name LIKE 'alerts.%' AND j.retired_at IS NULL
      AND j.target #> '{channel,on_ledger}' ? of_event
$$;
COMMENT ON FUNCTION {schema}_internal.ledger_channels(text) IS 'Returns the channels that subscribe to this event of the ledger: violation or runner_lost.';

CREATE OR REPLACE FUNCTION {schema}_internal.write_alert(state {schema}.tracked_states, kind text)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO {schema}.raised_alerts
        (at, event, kind, channel, since, count, job_name, scope_kind, scope_id, runner_id, execution_id, plan_time,
         summary, details, owner, labels)
    SELECT {schema}.db_clock(), CASE WHEN state.event = 'failed' AND kind = 'closed' THEN 'recovered' ELSE state.event END,
           kind, state.channel, state.since, state.count, nullif(state.job_name, ''), nullif(state.scope_kind, ''),
           nullif(state.scope_id, ''), nullif(state.runner_id, ''), state.execution_id, state.plan_time,
           state.summary, state.details,
           (SELECT j.owner FROM {schema}.jobs j WHERE j.name = state.job_name),
           (SELECT j.labels FROM {schema}.jobs j WHERE j.name = state.job_name)
$$;
COMMENT ON FUNCTION {schema}_internal.write_alert({schema}.tracked_states, text) IS 'Writes an alert of this kind about a state.';

-- A paused job keeps its state: it is flipped after the resume, if what was counted still differs from it.
CREATE OR REPLACE FUNCTION {schema}_internal.flip_state(
    state {schema}.tracked_states, after bigint, opens boolean, closes boolean, paused boolean)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF paused THEN
        RETURN;
    END IF;
    IF state.since IS NULL AND state.count >= after THEN
        state.since := {schema}.db_clock();
        UPDATE {schema}.tracked_states t SET since = state.since, last_alert_at = state.since
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (state.job_name, state.scope_kind, state.scope_id, state.runner_id, state.event, state.channel);
        IF opens THEN
            PERFORM {schema}_internal.write_alert(state, 'opened');
        END IF;
    ELSIF state.count = 0 AND (state.since IS NOT NULL OR state.event <> 'skipped') THEN
        IF state.since IS NOT NULL AND closes THEN
            PERFORM {schema}_internal.write_alert(state, 'closed');
        END IF;
        UPDATE {schema}.tracked_states t SET since = NULL, last_alert_at = NULL
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (state.job_name, state.scope_kind, state.scope_id, state.runner_id, state.event, state.channel)
          AND t.event = 'skipped';  -- which remembers the skips that it has seen
        DELETE FROM {schema}.tracked_states t
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (state.job_name, state.scope_kind, state.scope_id, state.runner_id, state.event, state.channel)
          AND t.event <> 'skipped';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.flip_state({schema}.tracked_states, bigint, boolean, boolean, boolean) IS 'Opens a state whose event has occurred often enough, or closes one whose event no longer holds, and writes the alert. Does nothing while the job is paused.';

-- found: channel, event, and the subject; execution_id, plan_time, summary and details of this occurrence. Its count
-- is 1 if the event occurred, and 0 if it no longer holds.
CREATE OR REPLACE FUNCTION {schema}_internal.observe_event(
    found {schema}.tracked_states, after bigint, opens boolean, closes boolean, paused boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    state {schema}.tracked_states;
BEGIN
    UPDATE {schema}.tracked_states t
    SET count = CASE found.count WHEN 0 THEN 0 ELSE t.count + found.count END,
        seen_plan_time = coalesce(found.seen_plan_time, t.seen_plan_time), execution_id = found.execution_id,
        plan_time = found.plan_time, summary = found.summary, details = found.details
    WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
        = (found.job_name, found.scope_kind, found.scope_id, found.runner_id, found.event, found.channel)
    RETURNING t.* INTO state;
    IF NOT FOUND THEN
        IF found.count = 0 AND found.seen_plan_time IS NULL THEN
            RETURN;
        END IF;
        INSERT INTO {schema}.tracked_states VALUES (found.*) RETURNING * INTO state;
    END IF;
    PERFORM {schema}_internal.flip_state(state, after, opens, closes, paused);
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_event({schema}.tracked_states, bigint, boolean, boolean, boolean) IS 'Records that an event occurred once more, or no longer holds, and flips its state.';

CREATE OR REPLACE FUNCTION {schema}_internal.unhandled_after(handled pg_snapshot, seen pg_snapshot, upto xid8)
RETURNS pg_snapshot LANGUAGE sql IMMUTABLE AS $$
    -- Numbers in progress in the result: those that were not visible in `handled`, and are from upto on or not
    -- visible now either.
    SELECT format('%s:%s:%s', coalesce(min(u.x::text::numeric), e.last::text::numeric), e.last,
                  string_agg(u.x::text, ',' ORDER BY u.x))::pg_snapshot
    FROM (SELECT CASE WHEN upto IS NULL THEN pg_snapshot_xmax(seen)
                      ELSE greatest(upto, pg_snapshot_xmax(handled)) END AS last) e
    LEFT JOIN LATERAL (
        SELECT x FROM pg_snapshot_xip(handled) x
        WHERE x < e.last AND (x >= upto OR NOT pg_visible_in_snapshot(x, seen))
        UNION
        SELECT x FROM pg_snapshot_xip(seen) x WHERE x >= pg_snapshot_xmax(handled) AND x < e.last) u ON true
    GROUP BY e.last
$$;
COMMENT ON FUNCTION {schema}_internal.unhandled_after(pg_snapshot, pg_snapshot, xid8) IS 'Returns the cursor after the changes that are visible in the second snapshot, and have numbers below upto (NULL: all), were observed.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_executions(handled pg_snapshot, from_at timestamptz, most integer)
RETURNS pg_snapshot LANGUAGE plpgsql
SET enable_seqscan = off SET enable_sort = on SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    seen    constant pg_snapshot := pg_current_snapshot();
    left_   constant xid8[] := ARRAY(SELECT pg_snapshot_xip(handled));
    first   constant xid8 := pg_snapshot_xmax(handled);
    -- A restored dump may contain numbers that this server has not reached. They are not read.
    last    constant xid8 := pg_snapshot_xmax(seen);
    numbers xid8[];
    upto    xid8;
    found   record;
BEGIN
    -- Whole transactions, at least one. Below upto all that is visible is observed.
    numbers := ARRAY(
        SELECT n.x FROM (
            (SELECT e.changed_xact FROM {schema}.executions e WHERE e.changed_xact = ANY (left_)
             ORDER BY e.changed_xact LIMIT most + 1)
            UNION ALL
            (SELECT e.changed_xact FROM {schema}.executions e WHERE e.changed_xact >= first AND e.changed_xact < last
             ORDER BY e.changed_xact LIMIT most + 1)
            UNION ALL
            (SELECT b.recorded_xact FROM {schema}.deadline_breaches b WHERE b.recorded_xact = ANY (left_)
             ORDER BY b.recorded_xact LIMIT most + 1)
            UNION ALL
            (SELECT b.recorded_xact FROM {schema}.deadline_breaches b
             WHERE b.recorded_xact >= first AND b.recorded_xact < last
             ORDER BY b.recorded_xact LIMIT most + 1)) n(x)
        ORDER BY n.x LIMIT most + 1);
    IF cardinality(numbers) > most THEN
        upto := numbers[most + 1];
        IF upto = numbers[1] THEN
            upto := (upto::text::numeric + 1)::text::xid8;
        END IF;
        upto := CASE WHEN upto < last THEN upto END;
    ELSIF cardinality(numbers) = 0 THEN
        RETURN {schema}_internal.unhandled_after(handled, seen, NULL);
    END IF;
    FOR found IN
        SELECT e.*, s.*, r.channel, r.event, r.after, r.opens, r.closes, r.paused, r.grace
        FROM (SELECT x.* FROM {schema}.executions x WHERE x.changed_xact = ANY (left_)
              UNION ALL
              SELECT x.* FROM {schema}.executions x WHERE x.changed_xact >= first AND x.changed_xact < last) e
        JOIN {schema}_internal.alert_rules() r USING (job_name)
        CROSS JOIN LATERAL (
            SELECT CASE WHEN e.attempts = '[]' THEN e.started_at
                        ELSE (e.attempts #>> '{0,started_at}')::timestamptz END AS first_start) s
        WHERE e.changed_xact < coalesce(upto, '18446744073709551615') AND pg_visible_in_snapshot(e.changed_xact, seen)
          AND e.next_attempt_at IS NULL AND e.finished_at >= from_at
        ORDER BY e.finished_at, e.id, r.channel, r.event
    LOOP
        IF found.event = 'failed' AND found.status IN ('FAILED', 'SUCCESS') THEN
            PERFORM {schema}_internal.observe_event(
                ROW(found.channel, 'failed', found.job_name, found.scope_kind, found.scope_id, '',
                    (found.status = 'FAILED')::integer, NULL, NULL, NULL, found.id, found.plan_time,
                    CASE found.status WHEN 'FAILED' THEN format('%s failed: %s', found.job_name,
                            coalesce(nullif(left(split_part(found.error_msg, chr(10), 1), 200), ''), found.error_code))
                         ELSE format('%s succeeded again', found.job_name) END,
                    jsonb_build_object('status', found.status, 'error_code', found.error_code,
                        'error_msg', left(found.error_msg, 1000), 'output', right(found.output, 1000),
                        'attempt', found.attempt, 'duration_ms', found.duration_ms))::{schema}.tracked_states,
                found.after, found.opens, found.closes, found.paused);
        ELSIF found.event = 'late' AND found.trigger = 'schedule' AND found.first_start IS NOT NULL
              -- An earlier one, which ran for longer, closes nothing.
              AND (found.first_start > found.due_at + found.grace OR NOT EXISTS (
                  SELECT FROM {schema}.tracked_states t
                  WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
                      = (found.job_name, found.scope_kind, found.scope_id, '', 'late', found.channel)
                    AND t.plan_time > found.plan_time)) THEN
            PERFORM {schema}_internal.observe_event(
                ROW(found.channel, 'late', found.job_name, found.scope_kind, found.scope_id, '',
                    (found.first_start > found.due_at + found.grace)::integer, NULL, NULL, NULL, found.id,
                    found.plan_time, format('%s started %s after it was due', found.job_name,
                        date_trunc('milliseconds', greatest(found.first_start - found.due_at, '0'))),
                    jsonb_build_object('due_at', found.due_at, 'started_at', found.first_start))::{schema}.tracked_states,
                found.after, found.opens, found.closes, found.paused);
        ELSIF found.event = 'skipped' AND found.trigger = 'schedule' AND found.first_start IS NOT NULL THEN
            -- A run from after the skip. The row of the state is kept.
            PERFORM {schema}_internal.observe_event(
                ROW(t.channel, t.event, t.job_name, t.scope_kind, t.scope_id, '', 0, NULL, NULL, NULL, found.id,
                    found.plan_time, format('%s ran again', found.job_name),
                    jsonb_build_object('status', found.status))::{schema}.tracked_states,
                found.after, found.opens, found.closes, found.paused)
            FROM {schema}.tracked_states t
            WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
                = (found.job_name, found.scope_kind, found.scope_id, '', 'skipped', found.channel)
              AND t.count > 0 AND found.plan_time > t.seen_plan_time;
        END IF;
    END LOOP;
    RETURN {schema}_internal.unhandled_after(handled, seen, upto);
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_executions(pg_snapshot, timestamptz, integer) IS 'Observes executions whose changes are not visible in this snapshot, and that ended at or after this instant, in the order of their ends. Reads whole transactions, with about this many changed executions and new breaches. Returns the next snapshot.';

-- The newest plan_time with judged deadlines decides the state. The state is open from a breach until that deadline is
-- met late, or until a later plan_time has met its deadlines. Messages and backfills have no deadlines. An execution
-- that did not succeed may still have met the deadlines of its start and its duration.
CREATE OR REPLACE FUNCTION {schema}_internal.close_met_deadline(
    state {schema}.tracked_states, before timestamptz, after bigint, opens boolean, closes boolean, paused boolean)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    by_start constant boolean := EXISTS (
        SELECT FROM {schema}.jobs j
        WHERE j.name = state.job_name
          AND (j.start_by IS NOT NULL OR j.expect_duration !~ 'p[1-9][0-9][[:space:]]*$'));
    through  constant timestamptz := coalesce((
        -- A job without a cursor has no deadlines any more.
        SELECT c.through FROM {schema}.deadline_cursors c WHERE c.job_name = state.job_name), 'infinity');
    met      record;
BEGIN
    SELECT e.id, e.plan_time, e.plan_time = state.plan_time AS late INTO met
    FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (state.job_name, state.scope_kind, state.scope_id)
      AND e.plan_time >= state.plan_time AND e.plan_time < coalesce(before, 'infinity')
      AND (e.plan_time = state.plan_time
           OR e.trigger = 'schedule' AND e.plan_time <= through OR e.trigger = 'manual')
      AND (e.plan_time = state.plan_time OR e.status = 'SUCCESS'
           OR by_start AND e.status IN ('RUNNING', 'FAILED') AND e.started_at IS NOT NULL)
      AND NOT EXISTS (
          SELECT FROM {schema}.deadlines d
          WHERE (d.job_name, d.scope_kind, d.scope_id, d.plan_time)
              = (e.job_name, e.scope_kind, e.scope_id, e.plan_time))
      AND NOT EXISTS (
          SELECT FROM {schema}.manual_deadlines m
          WHERE (m.job_name, m.scope_kind, m.scope_id, m.plan_time)
              = (e.job_name, e.scope_kind, e.scope_id, e.plan_time))
      AND NOT EXISTS (
          SELECT FROM {schema}.deadline_breaches b
          WHERE (b.job_name, b.scope_kind, b.scope_id, b.plan_time)
              = (e.job_name, e.scope_kind, e.scope_id, e.plan_time) AND b.closed_at IS NULL)
    ORDER BY e.plan_time LIMIT 1;
    IF FOUND THEN
        PERFORM {schema}_internal.observe_event(
            ROW(state.channel, 'deadline', state.job_name, state.scope_kind, state.scope_id, '', 0, NULL, NULL, NULL,
                met.id, met.plan_time,
                CASE WHEN met.late THEN format('%s met its deadline late', state.job_name)
                     ELSE format('%s met its deadlines again', state.job_name) END,
                jsonb_build_object('met_late', met.late))::{schema}.tracked_states,
            after, opens, closes, paused);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.close_met_deadline({schema}.tracked_states, timestamptz, bigint, boolean, boolean, boolean) IS 'Observes whether this open state of the event deadline no longer holds. Looks only at plan_times before the given one; NULL: at all.';

CREATE OR REPLACE FUNCTION {schema}_internal.close_met_deadlines() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}_internal.close_met_deadline(t, NULL, r.after, r.opens, r.closes, r.paused)
    FROM {schema}.tracked_states t
    JOIN {schema}_internal.alert_rules() r ON (r.job_name, r.event, r.channel) = (t.job_name, t.event, t.channel)
    WHERE t.event = 'deadline' AND t.count > 0;
END $$;
COMMENT ON FUNCTION {schema}_internal.close_met_deadlines() IS 'Observes which open states of the event deadline no longer hold.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_breaches(handled pg_snapshot, upto pg_snapshot, from_at timestamptz)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_sort = on SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    left_ constant xid8[] := ARRAY(SELECT pg_snapshot_xip(handled));
    first constant xid8 := pg_snapshot_xmax(handled);
    last  constant xid8 := pg_snapshot_xmax(upto);
    found record;
    state {schema}.tracked_states;
    next_ {schema}.tracked_states;
BEGIN
    FOR found IN
        SELECT b.*, r.channel, r.after, r.opens, r.closes, r.paused
        FROM (SELECT x.* FROM {schema}.deadline_breaches x WHERE x.recorded_xact = ANY (left_)
              UNION ALL
              SELECT x.* FROM {schema}.deadline_breaches x
              WHERE x.recorded_xact >= first AND x.recorded_xact < last) b
        JOIN {schema}_internal.alert_rules() r ON r.job_name = b.job_name AND r.event = 'deadline'
        WHERE pg_visible_in_snapshot(b.recorded_xact, upto) AND b.breached_at >= from_at
          -- Otherwise it is no breach (see the view breaches).
          AND (b.closed_at IS NULL OR b.closed_at > b.deadline)
        ORDER BY b.plan_time, b.breached_at, b.id, r.channel
    LOOP
        SELECT t.* INTO state FROM {schema}.tracked_states t
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (found.job_name, found.scope_kind, found.scope_id, '', 'deadline', found.channel) AND t.count > 0;
        IF state.plan_time < found.plan_time THEN
            PERFORM {schema}_internal.close_met_deadline(
                state, found.plan_time, found.after, found.opens, found.closes, found.paused);
        END IF;
        next_ := ROW(found.channel, 'deadline', found.job_name, found.scope_kind, found.scope_id, '', 1, NULL, NULL, NULL,
            found.execution_id, found.plan_time,
            format(CASE found.kind WHEN 'start_by' THEN '%s did not start by %s'
                                   WHEN 'finish_by' THEN '%s did not succeed by %s'
                                   ELSE '%s ran for longer than expected: until after %s' END,
                   found.job_name, to_char(found.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')),
            jsonb_build_object('policy', found.kind, 'deadline', found.deadline))::{schema}.tracked_states;
        IF state.plan_time > found.plan_time THEN
            -- The state stays about the newest plan_time, and counts this one.
            next_ := state;
            next_.count := 1;
        END IF;
        PERFORM {schema}_internal.observe_event(next_, found.after, found.opens, found.closes, found.paused);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_breaches(pg_snapshot, pg_snapshot, timestamptz) IS 'Observes the breaches that were recorded from this instant on, by transactions that are visible in the second snapshot and not in the first one.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_overdue(most integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    found record;
    total integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}_internal.alert_rules() r WHERE r.event = 'overdue') THEN
        RETURN false;
    END IF;
    FOR found IN
        WITH rules AS MATERIALIZED (
            SELECT r.* FROM {schema}_internal.alert_rules() r WHERE r.event = 'overdue' AND NOT r.paused
        ), late AS MATERIALIZED (
            SELECT DISTINCT ON (o.job_name, o.scope_kind, o.scope_id) o.*
            FROM {schema}.overdue o
            WHERE o.scope_id IS NOT NULL AND o.job_name IN (SELECT r.job_name FROM rules r)
              AND NOT {schema}_internal.is_scope_retired(o.job_name, o.scope_kind, o.scope_id)
            ORDER BY o.job_name, o.scope_kind, o.scope_id, o.due_at
        ), open AS MATERIALIZED (
            SELECT t.* FROM {schema}.tracked_states t WHERE t.event = 'overdue' AND t.count > 0
        )
        SELECT r.*, coalesce(o.scope_kind, t.scope_kind) AS kind, coalesce(o.scope_id, t.scope_id) AS scope,
               o.job_name IS NOT NULL AS holds, o.id, o.plan_time, o.due_at, o.reason, o.detail
        FROM (late o JOIN rules n ON n.job_name = o.job_name AND o.overdue_for > n.grace)
        FULL JOIN open t ON (t.job_name, t.scope_kind, t.scope_id, t.channel)
                          = (o.job_name, o.scope_kind, o.scope_id, n.channel)
        JOIN rules r ON (r.job_name, r.channel) = (coalesce(n.job_name, t.job_name), coalesce(n.channel, t.channel))
        WHERE o.job_name IS NULL OR t.job_name IS NULL
        ORDER BY r.job_name, r.channel, kind, scope LIMIT most
    LOOP
        total := total + 1;
        PERFORM {schema}_internal.observe_event(
            ROW(found.channel, 'overdue', found.job_name, found.kind, found.scope, '', found.holds::integer, NULL, NULL,
                NULL, found.id, found.plan_time,
                CASE WHEN found.holds THEN format('%s has not started: %s', found.job_name, found.detail)
                     ELSE format('%s is no longer overdue', found.job_name) END,
                jsonb_strip_nulls(jsonb_build_object('reason', found.reason, 'due_at', found.due_at))
            )::{schema}.tracked_states, found.after, found.opens, found.closes, false);
    END LOOP;
    RETURN total = most;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_overdue(integer) IS 'Observes which (job, scope) of jobs with the event overdue have been overdue for longer than grace, and which no longer are: at most this many, so that a transaction ends in time. Returns whether more may be left. Jobs that are paused keep their states.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_skips(from_at timestamptz, most integer) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    found record;
    total integer := 0;
BEGIN
    -- The last skip of each scope, by the key of skips. A range that grows has a new end.
    FOR found IN
        WITH rules AS MATERIALIZED (
            -- An edit of something else does not begin the rule again.
            SELECT r.*, (
                SELECT min(v.effective_from) FROM {schema}.job_revisions v
                WHERE v.job_name = r.job_name AND v.revision > coalesce((
                    SELECT max(o.revision) FROM {schema}.job_revisions o
                    WHERE o.job_name = r.job_name AND (o.state = 'retired' OR NOT coalesce(
                        o.definition -> 'notify' @> jsonb_build_array(
                            jsonb_build_object('channel', r.channel, 'on', '["skipped"]'::jsonb)), false))), 0)) AS declared_at
            FROM {schema}_internal.alert_rules() r WHERE r.event = 'skipped'
        )
        SELECT r.*, s.scope_kind, s.scope_id, s.retired_at IS NOT NULL AND s.returned_at IS NULL AS retired,
               k.from_plan_time, k.through_plan_time, k.reason, k.blocked_by
        FROM rules r
        JOIN {schema}.schedules s ON s.job_name = r.job_name
        CROSS JOIN LATERAL (
            SELECT x.* FROM {schema}.skips x
            WHERE (x.job_name, x.scope_kind, x.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
              AND x.reason IN ('overlap', 'missed')
            ORDER BY x.from_plan_time DESC LIMIT 1) k
        LEFT JOIN {schema}.tracked_states t
            ON (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
             = (s.job_name, s.scope_kind, s.scope_id, '', 'skipped', r.channel)
        WHERE k.through_plan_time > coalesce(t.seen_plan_time, greatest(from_at, r.declared_at))
        ORDER BY r.job_name, r.channel, s.scope_kind, s.scope_id LIMIT most
    LOOP
        total := total + 1;
        PERFORM {schema}_internal.observe_event(
            ROW(found.channel, 'skipped', found.job_name, found.scope_kind, found.scope_id, '', 1, NULL, NULL,
                found.through_plan_time, found.blocked_by, found.through_plan_time,
                format('%s skipped a firing: %s', found.job_name,
                       CASE found.reason WHEN 'overlap' THEN 'the previous execution was still RUNNING'
                                         ELSE 'it was not started within grace' END),
                jsonb_build_object('reason', found.reason, 'from_plan_time', found.from_plan_time,
                                   'through_plan_time', found.through_plan_time))::{schema}.tracked_states,
            found.after, found.opens, found.closes, found.paused OR found.retired);
    END LOOP;
    RETURN total = most;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_skips(timestamptz, integer) IS 'Observes at most this many new skips, with the reason overlap or missed, of jobs with the event skipped. Returns whether more may be left. For a scope that is not tracked yet, skips before this instant or before its job had the rule do not count. Skips of a retired scope raise no alert.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_runners(from_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    FOR found IN
        WITH channels AS (
            SELECT c.channel FROM unnest({schema}_internal.ledger_channels('runner_lost')) c(channel)
        ), lost AS (
            SELECT r.id, r.host, r.stale_after FROM {schema}.runners r
            -- Not a worker in another language, which does not report its end.
            WHERE r.state <> 'stopped' AND r.version <> 'external'
              AND r.stale_after < {schema}.db_now() AND r.stale_after >= from_at
        )
        SELECT c.channel, l.id AS runner, true AS holds, format('runner %s on %s has not checked in', l.id, l.host) AS summary,
               jsonb_build_object('host', l.host, 'stale_after', l.stale_after) AS details
        FROM channels c CROSS JOIN lost l
        WHERE NOT EXISTS (SELECT FROM {schema}.tracked_states t WHERE t.event = 'runner_lost'
                          AND (t.channel, t.runner_id) = (c.channel, l.id))
        UNION ALL
        SELECT t.channel, t.runner_id, false,
               CASE WHEN EXISTS (SELECT FROM {schema}.runners r WHERE r.id = t.runner_id AND r.state <> 'stopped')
                    THEN format('runner %s has checked in again', t.runner_id)
                    ELSE format('runner %s has stopped or was removed', t.runner_id) END, '{}'
        FROM {schema}.tracked_states t JOIN channels c USING (channel)
        WHERE t.event = 'runner_lost' AND t.runner_id NOT IN (SELECT l.id FROM lost l)
        ORDER BY 1, 2
    LOOP
        PERFORM {schema}_internal.observe_event(
            ROW(found.channel, 'runner_lost', '', '', '', found.runner, found.holds::integer, NULL, NULL, NULL, NULL,
                NULL, found.summary, found.details)::{schema}.tracked_states, 1, true, true, false);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_runners(timestamptz) IS 'Observes which runners were due to check in at or after this instant and neither did so nor stopped, and which of them have returned, stopped, or were removed.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_verifications(from_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found record;
    open  jsonb;
BEGIN
    FOR found IN
        WITH observed AS (
            UPDATE {schema}.verification_runs v SET observed = true
            WHERE NOT v.observed AND v.finished_at IS NOT NULL
            RETURNING v.*
        )
        SELECT o.*, c.channel FROM observed o
        CROSS JOIN unnest({schema}_internal.ledger_channels('violation')) c(channel)
        WHERE o.outcome = 'finished' AND o.finished_at >= from_at ORDER BY o.finished_at, o.id, c.channel
    LOOP
        SELECT t.details INTO open FROM {schema}.tracked_states t
        WHERE (t.job_name, t.event, t.channel) = ('', 'violation', found.channel) AND t.count > 0;
        IF found.violations > 0 THEN
            -- The state covers what all runs with violations had checked. NULL is all jobs, or the beginning.
            PERFORM {schema}_internal.observe_event(
                ROW(found.channel, 'violation', '', '', '', '', 1, NULL, NULL, NULL, NULL, NULL,
                    format('verify found %s violations%s', found.violations, ' of ' || found.job_name),
                    jsonb_build_object('verification', found.id, 'violations', found.violations, 'kinds', found.kinds,
                        'job', CASE WHEN open IS NULL OR open ->> 'job' = found.job_name THEN found.job_name END,
                        'checked_after', CASE WHEN open IS NULL THEN found.checked_after
                            WHEN found.checked_after > (open ->> 'checked_after')::timestamptz
                            THEN (open ->> 'checked_after')::timestamptz
                            WHEN open ->> 'checked_after' IS NOT NULL THEN found.checked_after END,
                        'checked_through', greatest(found.checked_through,
                            (open ->> 'checked_through')::timestamptz)))::{schema}.tracked_states, 1, true, true, false);
        ELSE
            -- Only a run that has checked again what the run with violations had checked.
            PERFORM {schema}_internal.observe_event(
                ROW(t.channel, 'violation', '', '', '', '', 0, NULL, NULL, NULL, NULL, NULL,
                    'verify found no violations', jsonb_build_object('verification', found.id))::{schema}.tracked_states,
                1, true, true, false)
            FROM {schema}.tracked_states t
            WHERE t.event = 'violation' AND t.channel = found.channel
              AND coalesce(found.job_name = t.details ->> 'job', found.job_name IS NULL)
              AND coalesce(found.checked_after <= (t.details ->> 'checked_after')::timestamptz, found.checked_after IS NULL)
              AND coalesce(found.checked_through >= (t.details ->> 'checked_through')::timestamptz, true);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_verifications(timestamptz) IS 'Observes the runs of verify that have ended since the last call, at or after this instant. The state is open until a later run has checked the same range, of the same job or of all jobs, and found no violation.';

CREATE OR REPLACE FUNCTION {schema}_internal.is_scope_retired(job text, kind text, scope text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM {schema}.schedules s
                   WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope)
                     AND s.retired_at IS NOT NULL AND s.returned_at IS NULL)
$$;
COMMENT ON FUNCTION {schema}_internal.is_scope_retired(text, text, text) IS 'Returns whether this scope is retired, and has not returned.';

CREATE OR REPLACE FUNCTION {schema}_internal.forget_states() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- What has no rule any more, because its job was edited, retired or deleted.
    DELETE FROM {schema}.tracked_states t
    WHERE t.job_name <> '' AND NOT EXISTS (
        SELECT FROM {schema}_internal.alert_rules() r
        WHERE (r.job_name, r.event, r.channel) = (t.job_name, t.event, t.channel));
    DELETE FROM {schema}.tracked_states t
    WHERE t.job_name = '' AND NOT EXISTS (
        SELECT FROM unnest({schema}_internal.ledger_channels(t.event)) c(channel) WHERE c.channel = t.channel);
    DELETE FROM {schema}.tracked_states t
    WHERE t.job_name <> '' AND t.event <> 'skipped'
      AND {schema}_internal.is_scope_retired(t.job_name, t.scope_kind, t.scope_id);
    -- It remembers the skips that it has seen, for the return of the scope.
    UPDATE {schema}.tracked_states t SET count = 0, since = NULL, last_alert_at = NULL
    WHERE t.job_name <> '' AND t.event = 'skipped' AND (t.count > 0 OR t.since IS NOT NULL)
      AND {schema}_internal.is_scope_retired(t.job_name, t.scope_kind, t.scope_id);
END $$;
COMMENT ON FUNCTION {schema}_internal.forget_states() IS 'Closes the states that have no rule any more, and those of retired scopes, without an alert.';

CREATE OR REPLACE FUNCTION {schema}_internal.settle_states() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}_internal.flip_state(t, r.after, r.opens, r.closes, r.paused)
    FROM {schema}.tracked_states t
    JOIN {schema}_internal.alert_rules() r
        ON (r.job_name, r.event, r.channel) = (t.job_name, t.event, t.channel)
    WHERE NOT r.paused AND (t.since IS NULL AND t.count >= r.after OR t.since IS NOT NULL AND t.count = 0);
END $$;
COMMENT ON FUNCTION {schema}_internal.settle_states() IS 'Flips the states whose events were counted while their jobs were paused.';

CREATE OR REPLACE FUNCTION {schema}_internal.remind_of_states() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    state {schema}.tracked_states;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.tracked_states t WHERE t.since IS NOT NULL) THEN
        RETURN;
    END IF;
    FOR state IN
        UPDATE {schema}.tracked_states t SET last_alert_at = {schema}.db_now()
        FROM {schema}_internal.alert_rules() r
        WHERE (r.job_name, r.event, r.channel) = (t.job_name, t.event, t.channel)
          AND t.since IS NOT NULL AND t.count > 0 AND r.opens AND NOT r.paused
          AND t.last_alert_at + r.remind <= {schema}.db_now()
        RETURNING t.*
    LOOP
        PERFORM {schema}_internal.write_alert(state, 'reminder');
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.remind_of_states() IS 'Writes a reminder for each open state whose last alert is older than remind of its rule.';

CREATE OR REPLACE FUNCTION {schema}_internal.alert_values(alert {schema}.raised_alerts) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('id', alert.id, 'event', alert.event, 'kind', alert.kind, 'at', alert.at,
        'since', alert.since, 'job', alert.job_name, 'scope_kind', alert.scope_kind, 'scope', alert.scope_id,
        'owner', alert.owner, 'labels', coalesce(alert.labels, '{}'), 'runner', alert.runner_id,
        'execution_id', alert.execution_id, 'plan_time', alert.plan_time, 'count', alert.count,
        'summary', alert.summary, 'details', alert.details)
$$;
COMMENT ON FUNCTION {schema}_internal.alert_values({schema}.raised_alerts) IS 'Returns an alert as an element of the payload of its delivery.';

CREATE OR REPLACE FUNCTION {schema}_internal.deliver_alerts() RETURNS integer LANGUAGE plpgsql
SET timezone = 'UTC' SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    most  constant integer := 500;
    to_   {schema}.jobs;
    taken bigint[];
    made  bigint;
    total integer := 0;
BEGIN
    -- Each channel at most once a minute, so that its alerts are grouped; the first one is not delayed.
    FOR to_ IN
        WITH RECURSIVE waiting AS (
            (SELECT a.channel FROM {schema}.raised_alerts a WHERE a.delivery_id IS NULL ORDER BY a.channel LIMIT 1)
            UNION ALL
            SELECT (SELECT a.channel FROM {schema}.raised_alerts a
                    WHERE a.delivery_id IS NULL AND a.channel > w.channel ORDER BY a.channel LIMIT 1)
            FROM waiting w WHERE w.channel IS NOT NULL
        )
        SELECT j.* FROM waiting w
        JOIN {schema}.jobs j ON j.name = 'alerts.' || w.channel AND j.queue = 'alerts' AND j.retired_at IS NULL
        WHERE NOT EXISTS (
            SELECT FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id) = (j.name, 'global', 'global')
              AND e.plan_time > {schema}.db_now() - interval '2 minutes'
              AND e.created_at > {schema}.db_now() - interval '1 minute' AND e.requested_by = 'alerts')
        ORDER BY j.name
    LOOP
        LOOP
            taken := ARRAY(SELECT a.id FROM {schema}.raised_alerts a
                           WHERE a.delivery_id IS NULL AND a.channel = substr(to_.name, 8) ORDER BY a.id LIMIT most);
            EXIT WHEN taken = '{}';
            made := {schema}_internal.create_message(to_, 'global', 'global', NULL, (
                SELECT jsonb_build_object('channel', substr(to_.name, 8), 'ledger',
                           (SELECT i.ledger_id FROM {schema}.identity i),
                           'alerts', jsonb_agg({schema}_internal.alert_values(a) ORDER BY a.id))
                FROM {schema}.raised_alerts a WHERE a.id = ANY (taken)), NULL, 'alerts');
            UPDATE {schema}.raised_alerts a SET delivery_id = made WHERE a.id = ANY (taken);
            total := total + 1;
        END LOOP;
    END LOOP;
    IF total > 0 THEN
        PERFORM pg_notify('{schema}', 'alerts');
    END IF;
    RETURN total;
END $$;
COMMENT ON FUNCTION {schema}_internal.deliver_alerts() IS 'Creates deliveries, with at most 500 alerts each, for the alerts that have none. Leaves out a channel if its last delivery was created within the last minute. Returns the number of deliveries.';

CREATE OR REPLACE FUNCTION {schema}_internal.has_unobserved(handled pg_snapshot) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    seen  constant pg_snapshot := pg_current_snapshot();
    first constant xid8 := pg_snapshot_xmax(handled);
    last  constant xid8 := pg_snapshot_xmax(seen);
BEGIN
    RETURN EXISTS (SELECT FROM {schema}.executions e
                   WHERE e.changed_xact >= first AND e.changed_xact < last
                     AND pg_visible_in_snapshot(e.changed_xact, seen))
        OR EXISTS (SELECT FROM {schema}.deadline_breaches b
                   WHERE b.recorded_xact >= first AND b.recorded_xact < last
                     AND pg_visible_in_snapshot(b.recorded_xact, seen));
END $$;
COMMENT ON FUNCTION {schema}_internal.has_unobserved(pg_snapshot) IS 'Returns whether there are visible changes after this cursor.';

CREATE OR REPLACE FUNCTION {schema}_internal.raise_alerts(most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    progress {schema}.alert_progress;
    upto     pg_snapshot;
    more     boolean := false;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.raise_alerts', 0)) THEN
        RETURN NULL;
    END IF;
    SELECT p.* INTO progress FROM {schema}.alert_progress p;
    IF NOT progress.watching THEN
        RETURN false;
    END IF;
    IF pg_snapshot_xmax(pg_current_snapshot()) < pg_snapshot_xmax(progress.handled) THEN
        -- Numbers go back when a dump is restored into another server.
        progress.handled := pg_current_snapshot();
        progress.since := {schema}.db_clock();
    END IF;
    upto := {schema}_internal.observe_executions(progress.handled, progress.since, most);
    PERFORM {schema}_internal.observe_breaches(progress.handled, upto, progress.since);
    IF progress.next_at <= {schema}.db_now() OR progress.next_at > {schema}.db_now() + interval '1 minute' THEN
        PERFORM {schema}_internal.forget_states();
        PERFORM {schema}_internal.close_met_deadlines();
        -- Each of these searches takes as long as some thousand flips.
        more := {schema}_internal.observe_overdue(20 * most);
        more := {schema}_internal.observe_skips(progress.since, 20 * most) OR more;
        PERFORM {schema}_internal.observe_runners(progress.since);
        PERFORM {schema}_internal.observe_verifications(progress.since);
        PERFORM {schema}_internal.settle_states();
        PERFORM {schema}_internal.remind_of_states();
        progress.next_at := {schema}.db_clock() + CASE WHEN more THEN interval '0' ELSE interval '10 seconds' END;
    END IF;
    PERFORM {schema}_internal.deliver_alerts();
    UPDATE {schema}.alert_progress p
    SET handled = upto, since = progress.since, next_at = progress.next_at;
    RETURN more OR {schema}_internal.has_unobserved(upto);
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_alerts(integer) IS 'Observes about this many changed executions and new breaches, and events of other kinds every 10 seconds; flips states, writes alerts, and creates their deliveries, all in this transaction. Returns whether more is left; NULL: another process does it.';

-- VOLATILE, so that it finds what the statement that calls it has created.
CREATE OR REPLACE FUNCTION {schema}_internal.is_delivery_due() RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM {schema}.jobs j
        WHERE j.name >= 'alerts.' AND j.name < 'alerts/' AND j.queue = 'alerts'
          AND (EXISTS (SELECT FROM {schema}.executions e
                       WHERE e.job_name = j.name AND e.next_attempt_at <= {schema}.db_now())
               OR EXISTS (SELECT FROM {schema}.executions e
                          WHERE e.status = 'RUNNING' AND e.job_name = j.name AND e.stale_after <= {schema}.db_now())));
END $$;
COMMENT ON FUNCTION {schema}_internal.is_delivery_due() IS 'Returns whether a delivery of alerts waits for a runner: it is due, or its lease is stale. Locks nothing.';

CREATE OR REPLACE FUNCTION {schema}_internal.watches_alerts() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.watching FROM {schema}.alert_progress p
$$;
COMMENT ON FUNCTION {schema}_internal.watches_alerts() IS 'Returns whether raise_alerts() has to be called: a job has notify, or a channel exists.';

CREATE OR REPLACE FUNCTION {schema}_internal.prune_alerts(most integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM {schema}.raised_alerts r
        WHERE r.id = ANY (ARRAY(
            SELECT a.id FROM {schema}.raised_alerts a
            WHERE a.at <= (SELECT p.through FROM {schema}.pruned p) ORDER BY a.at, a.id LIMIT most))
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
COMMENT ON FUNCTION {schema}_internal.prune_alerts(integer) IS 'Deletes at most this many alerts that are older than all kept executions, the oldest first, and returns how many.';
