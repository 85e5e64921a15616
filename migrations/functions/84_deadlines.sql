-- Deadlines. A step of the sweeper (engine/maintenance/deadlines.py) computes the deadlines of plan_times, because
-- wall times follow the zone data of the replicas. It writes them to deadlines, and judges those that are past.
-- One transaction contains the cursors, the new deadlines, the judged ones, the breaches and the counts. One process
-- at a time has the advisory lock, so that each deadline is judged exactly once, and a crash repeats the step.
-- Lock: the advisory lock; jobs FOR SHARE with SKIP LOCKED, so that no edit is dated before a cursor; then these
-- tables. Executions and skips are only read.

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_wake_deadlines() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.revision = OLD.revision THEN
        RETURN NULL;
    END IF;
    IF coalesce(NEW.start_by, NEW.finish_by, NEW.expect_duration) IS NOT NULL THEN
        -- Plan_times from the COMMIT on belong to the new revision; those before it have no deadlines.
        INSERT INTO {schema}.deadline_cursors AS c (job_name, through, next_at)
        VALUES (NEW.name, {schema}.db_clock(), {schema}.db_clock())
        ON CONFLICT (job_name) DO UPDATE SET next_at = EXCLUDED.next_at;
    ELSIF TG_OP = 'UPDATE' THEN
        UPDATE {schema}.deadline_cursors c SET next_at = {schema}.db_clock() WHERE c.job_name = NEW.name;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_wake_deadlines() IS 'Runs after a write to jobs. Makes the next step compute the deadlines of the job.';
CREATE OR REPLACE TRIGGER wake_deadlines AFTER INSERT OR UPDATE ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}_internal.jobs_wake_deadlines();
COMMENT ON TRIGGER wake_deadlines ON {schema}.jobs IS 'Calls jobs_wake_deadlines().';

CREATE OR REPLACE FUNCTION {schema}_internal.note_manual_deadlines(
    definition {schema}.jobs, scope {schema}.schedules, plan_time timestamptz, created_at timestamptz)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO {schema}.manual_deadlines (job_name, scope_kind, scope_id, plan_time, revision, created_at)
    SELECT scope.job_name, scope.scope_kind, scope.scope_id, plan_time, definition.revision, created_at
    WHERE coalesce(definition.start_by, definition.finish_by, definition.expect_duration) IS NOT NULL
$$;
COMMENT ON FUNCTION {schema}_internal.note_manual_deadlines({schema}.jobs, {schema}.schedules, timestamptz, timestamptz) IS 'Notes a manual execution for the computation of its deadlines, if its job has any.';

CREATE OR REPLACE FUNCTION {schema}_internal.next_deadline() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT least((SELECT min(c.next_at) FROM {schema}.deadline_cursors c WHERE c.next_at IS NOT NULL),
                 (SELECT min(d.look_at) FROM {schema}.deadlines d),
                 (SELECT min(b.look_at) FROM {schema}.deadline_breaches b WHERE b.closed_at IS NULL),
                 (SELECT min(m.created_at) FROM {schema}.manual_deadlines m))
$$;
COMMENT ON FUNCTION {schema}_internal.next_deadline() IS 'Returns when the next step for deadlines has something to do; NULL: nothing is planned. Four probes of indexes. Locks nothing.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_deadlines(most integer)
RETURNS TABLE (job_name text, through timestamptz, now_ timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    due text[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.deadlines', 0)) THEN
        RETURN;
    END IF;
    due := ARRAY(SELECT c.job_name FROM {schema}.deadline_cursors c WHERE c.next_at <= {schema}.db_now()
                 ORDER BY c.next_at LIMIT most);
    -- A job that was deleted has no row to lock, and no edits either.
    due := ARRAY(SELECT j.name FROM {schema}.jobs j WHERE j.name = ANY (due) ORDER BY j.name FOR SHARE SKIP LOCKED)
        || ARRAY(SELECT d.name FROM unnest(due) d(name)
                 WHERE NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.name = d.name));
    -- The row without a job: the lock is held.
    RETURN QUERY SELECT NULL::text, NULL::timestamptz, {schema}.db_now();
    RETURN QUERY SELECT c.job_name, greatest(c.through, p.through), {schema}.db_now()
    FROM {schema}.deadline_cursors c LEFT JOIN {schema}.pruned p ON true
    WHERE c.job_name = ANY (due) ORDER BY c.job_name;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_deadlines(integer) IS 'Takes the advisory lock of a step for deadlines. Returns a row without a job, and at most this many jobs whose deadlines have to be computed, locked against edits, with the cursor of each. No row: another process has the lock.';

CREATE OR REPLACE FUNCTION {schema}_internal.deadline_schedules(jobs text[])
RETURNS TABLE (job_name text, scope_kind text, scope_id text, created_at timestamptz, retired_at timestamptz,
               returned_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.job_name, s.scope_kind, s.scope_id, s.created_at, s.retired_at, s.returned_at
    FROM {schema}.schedules s WHERE s.job_name = ANY (jobs) ORDER BY s.job_name, s.scope_kind, s.scope_id
$$;
COMMENT ON FUNCTION {schema}_internal.deadline_schedules(text[]) IS 'Returns the schedules of these jobs, for the computation of deadlines.';

CREATE OR REPLACE FUNCTION {schema}_internal.deadline_revisions(names text[], since timestamptz[], numbers bigint[])
RETURNS TABLE (
    job_name text, number bigint, effective_from timestamptz, state text, pause_ends timestamptz, schedule text,
    timezone text, day_or boolean, dst_gap text, dst_fold text, schedule_delay interval, jitter interval,
    starts_at timestamptz, ends_at timestamptz, start_by text, finish_by text, expect_duration text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.job_name, r.revision, r.effective_from, r.state, r.paused_until, d.schedule, d.timezone, d.day_or,
           d.dst_gap, d.dst_fold, d.schedule_delay, d.jitter, d.starts_at, d.ends_at, d.start_by, d.finish_by,
           d.expect_duration
    FROM unnest(names, since, numbers) AS u(name, since, number)
    CROSS JOIN LATERAL (
        SELECT r.* FROM {schema}.job_revisions r
        WHERE r.job_name = u.name
          AND (r.revision = u.number OR u.number IS NULL AND r.revision >= coalesce(
               (SELECT max(o.revision) FROM {schema}.job_revisions o
                WHERE o.job_name = u.name AND o.effective_from < u.since), 0))) r
    CROSS JOIN LATERAL jsonb_populate_record(NULL::{schema}.jobs, (
        SELECT jsonb_object_agg(f.key, f.value) FROM jsonb_each(r.definition) f
        WHERE f.key IN ('schedule', 'timezone', 'day_or', 'dst_gap', 'dst_fold', 'schedule_delay', 'jitter',
                        'starts_at', 'ends_at', 'start_by', 'finish_by', 'expect_duration'))) d
    ORDER BY r.job_name, r.revision
$$;
COMMENT ON FUNCTION {schema}_internal.deadline_revisions(text[], timestamptz[], bigint[]) IS 'Returns the revisions of each job that own plan_times after the instant, or the one with this number, with the columns that decide plan_times and deadlines. The oldest first.';

CREATE OR REPLACE FUNCTION {schema}_internal.take_manual_deadlines(most integer)
RETURNS TABLE (job_name text, scope_kind text, scope_id text, plan_time timestamptz, revision bigint,
               created_at timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM {schema}.manual_deadlines m
    WHERE m.ctid = ANY (ARRAY(SELECT o.ctid FROM {schema}.manual_deadlines o ORDER BY o.created_at LIMIT most))
    RETURNING m.job_name, m.scope_kind, m.scope_id, m.plan_time, m.revision, m.created_at
$$;
COMMENT ON FUNCTION {schema}_internal.take_manual_deadlines(integer) IS 'Removes and returns at most this many manual executions whose deadlines are to be computed, the oldest first. The caller has the advisory lock of the step, and adds the deadlines in the same transaction.';

-- A deadline is judged a second after it, so that the COMMIT of what met it has become visible.
CREATE OR REPLACE FUNCTION {schema}_internal.add_deadlines(
    jobs text[], kinds text[], scopes text[], plans timestamptz[], policies text[], revisions bigint[],
    instants timestamptz[], lengths interval[], months date[], fractions float8[], factors float8[])
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH given AS (
        SELECT u.* FROM unnest(jobs, kinds, scopes, plans, policies, revisions, instants, lengths, months, fractions,
                               factors)
            AS u(job, kind, scope, plan, policy, revision, instant, length, month, fraction, factor)
    ), usual AS (
        -- Of the last 200 executions before the first of the plan_times in an hour, those that are SUCCESS.
        SELECT g.job, g.kind, g.scope, g.fraction, g.hour, (
            SELECT CASE WHEN count(*) >= 20 THEN percentile_cont(g.fraction) WITHIN GROUP (ORDER BY d.duration_ms) END
            FROM (SELECT e.status, e.duration_ms FROM {schema}.executions e
                  WHERE (e.job_name, e.scope_kind, e.scope_id) = (g.job, g.kind, g.scope) AND e.plan_time < g.first
                  ORDER BY e.plan_time DESC LIMIT 200) d
            WHERE d.status = 'SUCCESS' AND d.duration_ms IS NOT NULL) * interval '1 millisecond' AS duration
        FROM (SELECT n.job, n.kind, n.scope, n.fraction, date_trunc('hour', n.plan, 'UTC') AS hour, min(n.plan) AS first
              FROM given n WHERE n.fraction IS NOT NULL GROUP BY 1, 2, 3, 4, 5) g
    ), known AS (
        SELECT n.*, CASE WHEN n.length IS NOT NULL THEN n.length
                         WHEN u.duration IS NOT NULL THEN greatest(u.duration * n.factor, interval '1 second') END AS expected
        FROM given n LEFT JOIN usual u
            ON (u.job, u.kind, u.scope, u.fraction, u.hour)
             = (n.job, n.kind, n.scope, n.fraction, date_trunc('hour', n.plan, 'UTC'))
    )
    INSERT INTO {schema}.deadlines
        (job_name, scope_kind, scope_id, plan_time, kind, revision, deadline, expected, month, look_at)
    SELECT k.job, k.kind, k.scope, k.plan, k.policy, k.revision, k.instant,
           CASE k.policy WHEN 'expect_duration' THEN k.expected END, k.month,
           coalesce(k.instant, k.plan + k.expected) + interval '1 second'
    FROM known k WHERE k.policy <> 'expect_duration' OR k.expected IS NOT NULL
    ON CONFLICT DO NOTHING
$$;
COMMENT ON FUNCTION {schema}_internal.add_deadlines(text[], text[], text[], timestamptz[], text[], bigint[], timestamptz[], interval[], date[], float8[], float8[]) IS 'Adds deadlines, which a later step judges. Existing deadlines are not changed. fractions and factors: the quantile and the multiple of an expected duration. With fewer than 20 durations, no deadline of this kind is added.';

CREATE OR REPLACE FUNCTION {schema}_internal.advance_deadlines(
    jobs text[], throughs timestamptz[], nexts timestamptz[], ended text[])
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM {schema}.deadline_cursors c WHERE c.job_name = ANY (ended);
    UPDATE {schema}.deadline_cursors c SET through = greatest(c.through, u.through), next_at = u.next_at
    FROM unnest(jobs, throughs, nexts) AS u(job, through, next_at) WHERE c.job_name = u.job
$$;
COMMENT ON FUNCTION {schema}_internal.advance_deadlines(text[], timestamptz[], timestamptz[], text[]) IS 'Moves the cursors of these jobs, and deletes those of `ended`, which have no deadlines any more.';

-- The execution of a key, as deadlines see it. first_start does not change with retries.
CREATE OR REPLACE FUNCTION {schema}_internal.deadline_facts(
    job text, kind text, scope text, plan timestamptz,
    OUT id bigint, OUT status text, OUT first_start timestamptz, OUT started_at timestamptz,
    OUT finished_at timestamptz, OUT duration interval, OUT final boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $$
    SELECT e.id, e.status,
           CASE WHEN e.attempts = '[]' THEN e.started_at ELSE (e.attempts #>> '{0,started_at}')::timestamptz END,
           e.started_at, e.finished_at, e.duration_ms * interval '1 millisecond', e.next_attempt_at IS NULL
    FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (job, kind, scope, plan) LIMIT 1
$$;
COMMENT ON FUNCTION {schema}_internal.deadline_facts(text, text, text, timestamptz) IS 'Returns the parts of an execution that decide whether it met its deadlines. No row: there is no such execution.';

CREATE OR REPLACE FUNCTION {schema}_internal.judge_deadlines(most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    counted integer;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.* FROM {schema}.deadlines d WHERE d.look_at <= {schema}.db_now() ORDER BY d.look_at LIMIT most
    ), seen AS MATERIALIZED (
        SELECT d.*, e.id, e.status, e.first_start, e.started_at, e.finished_at, e.duration, e.final, k.reason
        FROM due d
        LEFT JOIN LATERAL {schema}_internal.deadline_facts(d.job_name, d.scope_kind, d.scope_id, d.plan_time) e ON true
        -- Ranges of one scope overlap only where jitter makes their plan_times alternate.
        LEFT JOIN LATERAL (
            SELECT o.reason FROM (
                SELECT k.reason, k.through_plan_time FROM {schema}.skips k
                WHERE (k.job_name, k.scope_kind, k.scope_id) = (d.job_name, d.scope_kind, d.scope_id)
                  AND k.from_plan_time <= d.plan_time
                ORDER BY k.from_plan_time DESC LIMIT 10) o
            WHERE o.through_plan_time >= d.plan_time LIMIT 1) k ON e.id IS NULL
    ), judged AS MATERIALIZED (
        SELECT s.*, CASE
            WHEN s.id IS NULL AND s.reason IN ('paused', 'retired') THEN 'void'
            WHEN s.kind = 'start_by' THEN CASE
                WHEN s.first_start <= s.deadline THEN 'met'
                WHEN s.first_start IS NULL AND s.status = 'CANCELLED' AND s.finished_at <= s.deadline THEN 'void'
                ELSE 'missed' END
            WHEN s.kind = 'finish_by' THEN CASE
                WHEN s.status = 'SUCCESS' AND s.finished_at <= s.deadline THEN 'met'
                WHEN s.status = 'CANCELLED' AND s.finished_at <= s.deadline THEN 'void'
                ELSE 'missed' END
            WHEN s.id IS NULL THEN CASE WHEN s.reason IS NULL THEN 'open' ELSE 'void' END
            WHEN s.status = 'RUNNING' THEN CASE
                WHEN s.started_at + s.expected < {schema}.db_now() THEN 'missed' ELSE 'open' END
            WHEN s.status <> 'PENDING' AND s.duration > s.expected THEN 'missed'
            WHEN s.status = 'CANCELLED' THEN 'void'
            WHEN s.final THEN 'met'
            ELSE 'open' END AS verdict
        FROM seen s
    ), gone AS (
        DELETE FROM {schema}.deadlines d USING judged j
        WHERE (d.job_name, d.scope_kind, d.scope_id, d.plan_time, d.kind)
            = (j.job_name, j.scope_kind, j.scope_id, j.plan_time, j.kind) AND j.verdict <> 'open'
    ), kept AS (
        -- What starts from now on cannot run for too long before that.
        UPDATE {schema}.deadlines d
        SET look_at = greatest(CASE j.status WHEN 'RUNNING' THEN j.started_at ELSE {schema}.db_now() END + j.expected,
                               {schema}.db_now()) + interval '1 second'
        FROM judged j
        WHERE (d.job_name, d.scope_kind, d.scope_id, d.plan_time, d.kind)
            = (j.job_name, j.scope_kind, j.scope_id, j.plan_time, j.kind) AND j.verdict = 'open'
    ), missed AS (
        INSERT INTO {schema}.deadline_breaches
            (job_name, scope_kind, scope_id, plan_time, kind, execution_id, revision, deadline, month, breached_at,
             look_at)
        SELECT j.job_name, j.scope_kind, j.scope_id, j.plan_time, j.kind, j.id, j.revision,
               coalesce(j.deadline, j.started_at + j.expected), j.month, {schema}.db_now(), {schema}.db_now()
        FROM judged j WHERE j.verdict = 'missed'
        ORDER BY j.job_name, j.scope_kind, j.scope_id, j.plan_time, j.kind
    ), counts AS (
        INSERT INTO {schema}.deadline_months AS m
            (job_name, scope_kind, scope_id, month, kind, met, met_late, missed)
        SELECT j.job_name, j.scope_kind, j.scope_id, j.month, j.kind, count(*) FILTER (WHERE j.verdict = 'met'), 0,
               count(*) FILTER (WHERE j.verdict = 'missed')
        FROM judged j WHERE j.verdict IN ('met', 'missed') GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (job_name, scope_kind, scope_id, month, kind)
        DO UPDATE SET met = m.met + EXCLUDED.met, missed = m.missed + EXCLUDED.missed
    )
    SELECT count(*) INTO counted FROM judged;
    RETURN counted;
END $$;
COMMENT ON FUNCTION {schema}_internal.judge_deadlines(integer) IS 'Judges at most this many deadlines that have passed, records the missed ones, and counts all of them. Returns how many it examined. The caller has the advisory lock of the step.';

-- An open breach is looked at again after a tenth of its age, at most after an hour, because any later attempt, retry
-- or backfill may meet the deadline late.
CREATE OR REPLACE FUNCTION {schema}_internal.close_breaches(most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    counted integer;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT b.* FROM {schema}.deadline_breaches b
        WHERE b.closed_at IS NULL AND b.look_at <= {schema}.db_now() ORDER BY b.look_at LIMIT most
    ), seen AS MATERIALIZED (
        SELECT d.job_name, d.scope_kind, d.scope_id, d.plan_time, d.kind, d.month, d.deadline, e.id, CASE
            WHEN d.kind = 'start_by' THEN e.first_start
            WHEN e.status = 'SUCCESS' THEN CASE d.kind
                WHEN 'finish_by' THEN e.finished_at ELSE e.started_at + e.duration END END AS met_at
        FROM due d
        LEFT JOIN LATERAL {schema}_internal.deadline_facts(d.job_name, d.scope_kind, d.scope_id, d.plan_time) e ON true
    ), written AS (
        UPDATE {schema}.deadline_breaches b
        SET closed_at = s.met_at, execution_id = coalesce(b.execution_id, s.id),
            look_at = CASE WHEN s.met_at IS NULL THEN {schema}.db_now() + least(interval '1 hour',
                greatest(interval '5 seconds', ({schema}.db_now() - b.breached_at) / 10)) END
        FROM seen s
        WHERE (b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.kind)
            = (s.job_name, s.scope_kind, s.scope_id, s.plan_time, s.kind)
    ), moved AS (
        SELECT s.job_name, s.scope_kind, s.scope_id, s.month, s.kind,
               count(*) FILTER (WHERE s.met_at > s.deadline) AS late,
               count(*) FILTER (WHERE s.met_at <= s.deadline) AS in_time
        FROM seen s WHERE s.met_at IS NOT NULL GROUP BY 1, 2, 3, 4, 5
    ), counts AS (
        UPDATE {schema}.deadline_months m
        SET met = m.met + c.in_time, met_late = m.met_late + c.late, missed = m.missed - c.late - c.in_time
        FROM moved c
        WHERE (m.job_name, m.scope_kind, m.scope_id, m.month, m.kind)
            = (c.job_name, c.scope_kind, c.scope_id, c.month, c.kind)
    )
    SELECT count(*) INTO counted FROM seen;
    RETURN counted;
END $$;
COMMENT ON FUNCTION {schema}_internal.close_breaches(integer) IS 'Checks at most this many open breaches that are due to be checked, and closes those whose deadline was met late. Returns how many it checked. The caller has the advisory lock of the step.';

CREATE OR REPLACE FUNCTION {schema}_internal.prune_breaches(most integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM {schema}.deadline_breaches b
        WHERE b.ctid = ANY (ARRAY(
            SELECT o.ctid FROM {schema}.deadline_breaches o
            WHERE o.plan_time <= (SELECT p.through FROM {schema}.pruned p) ORDER BY o.plan_time LIMIT most))
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
COMMENT ON FUNCTION {schema}_internal.prune_breaches(integer) IS 'Deletes at most this many breaches whose executions may have been pruned, the oldest first, and returns how many. The counts of their months are kept.';
