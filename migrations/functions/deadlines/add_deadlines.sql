CREATE OR REPLACE FUNCTION {schema}_internal.lock_deadlines(most integer)
RETURNS TABLE (job_name text, through timestamptz, now_ timestamptz, upto timestamptz, after_kind text, after_id text,
               following timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    due text[];
BEGIN
    IF {schema}_internal.take_turn('deadlines') IS NOT TRUE THEN
        RETURN;
    END IF;
    -- The plan_times of a pause have no deadlines. It may have begun before the edit that states it.
    due := ARRAY(SELECT c.job_name FROM {schema}.deadline_cursors c
                 WHERE c.next_at <= {schema}.db_now()
                   AND c.job_name NOT IN (SELECT s.job FROM {schema}_internal.jobs_to_settle() s(job))
                 ORDER BY c.next_at LIMIT most);
    -- A job that was deleted has no row to lock, and no edits either.
    due := ARRAY(SELECT j.name FROM {schema}.jobs j WHERE j.name = ANY (due) ORDER BY j.name FOR SHARE SKIP LOCKED)
        || ARRAY(SELECT d.name FROM unnest(due) d(name)
                 WHERE NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.name = d.name));
    -- The row without a job: the turn is taken.
    RETURN QUERY SELECT '', {schema}.db_now(), {schema}.db_now(), NULL::timestamptz, NULL, NULL, NULL::timestamptz;
    RETURN QUERY SELECT c.job_name, greatest(c.through, p.through), {schema}.db_now(), c.upto, c.after_kind, c.after_id,
                        c.following
    FROM {schema}.deadline_cursors c LEFT JOIN {schema}.pruned p ON true
    WHERE c.job_name = ANY (due) ORDER BY c.next_at, c.job_name;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_deadlines(integer) IS 'Takes the turn of a step for deadlines. Returns a row without a job, and at most this many jobs whose deadlines have to be computed, locked against edits, with the cursor of each: first those that have waited for longest. Jobs that wait for settle_pauses are left out. No row: another process has the turn.';

CREATE OR REPLACE FUNCTION {schema}_internal.deadline_schedules(
    jobs text[], throughs timestamptz[], after_kinds text[], after_ids text[], most integer)
RETURNS TABLE (job_name text, scope_kind text, scope_id text, created_at timestamptz, retired timestamptz[],
               returned timestamptz[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    left_ integer := most;
    found integer;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(jobs), 0) LOOP
        RETURN QUERY
        SELECT s.job_name, s.scope_kind, s.scope_id, s.created_at, r.retired, r.returned
        FROM (SELECT x.* FROM {schema}.schedules x
              WHERE x.job_name = jobs[i]
                AND (x.scope_kind, x.scope_id) > (coalesce(after_kinds[i], ''), coalesce(after_ids[i], ''))
                AND (x.retired_at IS NULL OR x.returned_at IS NOT NULL OR x.retired_at > throughs[i])
              ORDER BY x.scope_kind, x.scope_id LIMIT left_) s
        CROSS JOIN LATERAL (
            SELECT array_agg(h.retired_at ORDER BY h.retired_at) AS retired,
                   array_agg(h.returned_at ORDER BY h.retired_at) AS returned
            FROM {schema}.scope_retirements h
            WHERE (h.job_name, h.scope_kind, h.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
              AND (h.returned_at IS NULL OR h.returned_at > throughs[i])) r
        ORDER BY s.scope_kind, s.scope_id;
        GET DIAGNOSTICS found = ROW_COUNT;
        left_ := left_ - found;
        EXIT WHEN left_ = 0;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.deadline_schedules(text[], timestamptz[], text[], text[], integer) IS 'Returns at most this many schedules of these jobs, in the order of the jobs and of the scopes, with the retirements that end after the cursor of the job. For each job, only those after the given scope (NULL: all). Leaves out scopes that have been retired since before the cursor.';

CREATE OR REPLACE FUNCTION {schema}_internal.deadline_revisions(names text[], since timestamptz[], numbers bigint[])
RETURNS TABLE (
    job_name text, number bigint, effective_from timestamptz, state text, pause_ends timestamptz,
    definition {schema}.jobs)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.job_name, r.revision, r.effective_from, r.state, r.paused_until,
           jsonb_populate_record(NULL::{schema}.jobs, r.definition - ARRAY['payload', 'target', 'scopes', 'payload_schema'])
    FROM unnest(names, since, numbers) AS u(name, since, number)
    CROSS JOIN LATERAL (
        SELECT r.* FROM {schema}.job_revisions r
        WHERE r.job_name = u.name
          AND (r.revision = u.number OR u.number IS NULL AND r.revision >= coalesce(
               (SELECT max(o.revision) FROM {schema}.job_revisions o
                WHERE o.job_name = u.name AND o.effective_from < u.since), 0))) r
    ORDER BY r.job_name, r.revision
$$;
COMMENT ON FUNCTION {schema}_internal.deadline_revisions(text[], timestamptz[], bigint[]) IS 'Returns the revisions of each job that own plan_times after the instant, or the one with this number, without payload, target, scopes and payload_schema. The oldest first.';

CREATE OR REPLACE FUNCTION {schema}_internal.take_manual_deadlines(most integer)
RETURNS TABLE (job_name text, scope_kind text, scope_id text, plan_time timestamptz, revision bigint,
               created_at timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM {schema}.manual_deadlines m
    WHERE m.ctid = ANY (ARRAY(SELECT o.ctid FROM {schema}.manual_deadlines o ORDER BY o.created_at LIMIT most))
    RETURNING m.job_name, m.scope_kind, m.scope_id, m.plan_time, m.revision, m.created_at
$$;
COMMENT ON FUNCTION {schema}_internal.take_manual_deadlines(integer) IS 'Removes and returns at most this many manual executions whose deadlines are to be computed, the oldest first. The caller has the turn of the step, and adds the deadlines in the same transaction.';

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
    jobs text[], throughs timestamptz[], nexts timestamptz[], uptos timestamptz[], after_kinds text[], after_ids text[],
    followings timestamptz[], ended text[])
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM {schema}.deadline_cursors c WHERE c.job_name = ANY (ended);
    UPDATE {schema}.deadline_cursors c
    SET through = greatest(c.through, u.through), next_at = u.next_at, upto = u.upto, after_kind = u.after_kind,
        after_id = u.after_id, following = u.following
    FROM unnest(jobs, throughs, nexts, uptos, after_kinds, after_ids, followings)
        AS u(job, through, next_at, upto, after_kind, after_id, following) WHERE c.job_name = u.job
$$;
COMMENT ON FUNCTION {schema}_internal.advance_deadlines(text[], timestamptz[], timestamptz[], timestamptz[], text[], text[], timestamptz[], text[]) IS 'Moves the cursors of these jobs, and deletes those of `ended`, which no longer have deadlines. With uptos: notes how far the pass over the scopes of the job has come.';
