-- What a claim of a replica does before it decides, in one statement: it claims what exists, locks due schedules,
-- locks the limits of these, and reads what the decision depends on (engine/claiming/claim.py).
-- Locks: those of claim_due, then schedules, then limited queues and jobs, all SKIP LOCKED, because queues and jobs
-- come before schedules in the lock order. All are held until the end of the transaction.
-- Each step is a statement of its own: a statement that took a lock still sees the state before it, and in READ
-- COMMITTED each statement of a VOLATILE function takes a new snapshot. db_now() is the same in all of them.

-- They need no slot to be planned, so they have a limit of their own. Each woken job has the same share of it, so
-- that one job with 100,000 scopes does not delay the edit of another. No more than ten shares are tried for each
-- job: an edit in progress locks all of its schedules, and skipping 100,000 locked rows takes 0.1 s.
CREATE OR REPLACE FUNCTION {schema}_internal.lock_woken_schedules(
    of_queues text[], excluded_jobs text[], max_rows integer)
RETURNS SETOF {schema}_internal.locked_schedule LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    WITH edited AS MATERIALIZED (
        SELECT n.queue, n.job FROM {schema}_internal.woken_jobs(of_queues) n
        WHERE n.job NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job))
        LIMIT max_rows
    )
    SELECT w.job_name, w.scope_kind, w.scope_id, w.queue, w.planned_through, w.planned_revision,
           w.next_plan_time, w.retired_at, w.returned_at, w.woken, NULL::timestamptz, w.address,
           w.input_watermark, w.running_from
    FROM (
        SELECT s.*
        FROM (SELECT e.*, greatest(1, max_rows / count(*) OVER ()) AS share FROM edited e) e
        CROSS JOIN LATERAL (
            SELECT s.*
            FROM (
                SELECT c.scope_kind, c.scope_id FROM {schema}.schedules c
                WHERE c.woken AND c.queue = e.queue AND c.job_name = e.job
                  AND c.next_due_at <= {schema}.db_now()
                ORDER BY c.scope_kind, c.scope_id LIMIT 10 * e.share
            ) c
            CROSS JOIN LATERAL (
                SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.planned_through,
                       s.planned_revision, s.next_plan_time, s.retired_at, s.returned_at, s.woken,
                       s.next_due_at, s.ctid AS address, s.input_watermark, s.running_from
                FROM {schema}.schedules s
                WHERE (s.job_name, s.scope_kind, s.scope_id) = (e.job, c.scope_kind, c.scope_id)
                  AND s.woken AND s.queue = e.queue AND s.next_due_at <= {schema}.db_now()
                LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
            ) s
            LIMIT e.share
        ) s
    ) w
    ORDER BY w.next_due_at, w.job_name, w.scope_kind, w.scope_id;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_woken_schedules(text[], text[], integer) IS 'Locks schedules of these queues that were woken to be planned again, the same share of each job, and returns them. Schedules that are locked already are left out.';

-- Those that are due, the oldest first, because slots may not be enough for all of them.
-- Also locked are those that are due within `ahead`. They are returned only if none is due yet, and only those
-- within 1 ms after the first one, because executions that are claimed ahead start together.
-- One search of the index for schedules of no host, and one for those of this host. Those of others are not read.
-- No join and no condition on jobs: what cannot start is parked, and is not in this index. excluded_jobs: jobs
-- whose handler another runner has and this one does not; NOT IN, because it has a hash in every plan.
CREATE OR REPLACE FUNCTION {schema}_internal.lock_due_schedules(
    of_queues text[], of_host text, excluded_jobs text[], max_rows integer, ahead interval, due_from timestamptz)
RETURNS SETOF {schema}_internal.locked_schedule LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    SELECT x.job_name, x.scope_kind, x.scope_id, x.queue, x.planned_through, x.planned_revision,
           x.next_plan_time, x.retired_at, x.returned_at, false,
           CASE WHEN x.next_due_at > {schema}.db_now() THEN x.next_due_at END, x.address, x.input_watermark,
           x.running_from
    FROM (
        SELECT d.*, min(d.next_due_at) OVER () AS first
        FROM {schema}_internal.open_queues(of_queues) o
        CROSS JOIN (VALUES (''), (of_host)) own(host)
        CROSS JOIN LATERAL (
            SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.planned_through, s.planned_revision,
                   s.next_plan_time, s.retired_at, s.returned_at, s.next_due_at, s.ctid AS address,
                   s.input_watermark, s.running_from
            FROM {schema}.schedules s
            WHERE NOT s.woken AND s.queue = o.name AND {schema}_internal.scope_host(s.scope_kind, s.scope_id) = own.host
              AND s.next_due_at <= {schema}.db_now() + ahead
              AND s.next_due_at >= coalesce(due_from, '-infinity')
              AND s.job_name NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job))
            ORDER BY s.next_due_at LIMIT max_rows
            FOR NO KEY UPDATE OF s SKIP LOCKED
        ) d
    ) x
    WHERE x.next_due_at <= CASE WHEN x.first > {schema}.db_now()
                                THEN x.first + interval '1 ms' ELSE {schema}.db_now() END
    ORDER BY x.next_due_at, x.job_name, x.scope_kind, x.scope_id;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_due_schedules(text[], text, text[], integer, interval, timestamptz) IS 'Locks the schedules of these queues, and of no other host, that are due, or those that are due within ahead if none is due yet, and returns them. Schedules that were woken (lock_woken_schedules) or are locked already are left out. due_from: none is due before, so that the search leaves out dead versions of rows; NULL: unknown.';

-- The oldest come first, because the planner settles plan_times in order. The ranges are those of plan_times that a
-- report may belong to although they are skipped already, because it was delivered late.
CREATE OR REPLACE FUNCTION {schema}_internal.unmatched_reports(
    locked {schema}_internal.locked_schedule[], OUT reports json, OUT unreported json)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT json_agg(json_build_array(s.job_name, s.scope_kind, s.scope_id, r.id, r.started_at)
                    ORDER BY r.started_at, r.id)
    INTO reports
    FROM unnest(locked) s
    CROSS JOIN LATERAL (
        SELECT r.id, r.started_at FROM {schema}.reports r
        WHERE (r.job_name, r.scope_kind, r.scope_id) = (s.job_name, s.scope_kind, s.scope_id) AND r.execution_id IS NULL
          AND r.started_at > coalesce({schema}.pruned_through(), '-infinity')
        ORDER BY r.started_at, r.id LIMIT 500) r;
    IF reports IS NULL THEN
        RETURN;
    END IF;
    SELECT json_agg(json_build_array(
               k.report, k.first, k.last, k.revision, ARRAY(
                   SELECT e.plan_time FROM {schema}.executions e
                   WHERE (e.job_name, e.scope_kind, e.scope_id) = (k.job_name, k.scope_kind, k.scope_id)
                     AND e.plan_time BETWEEN k.first AND k.last)))
    INTO unreported
    FROM (
        SELECT (r.value ->> 3)::bigint AS report, k.job_name, k.scope_kind, k.scope_id, k.revision,
               greatest(k.from_plan_time, a.started_at - (v.definition ->> 'grace')::interval,
                        {schema}.pruned_through() + interval '1 microsecond') AS first,
               least(k.through_plan_time, a.started_at + interval '5 s') AS last
        FROM json_array_elements(reports) r
        CROSS JOIN LATERAL (SELECT (r.value ->> 4)::timestamptz AS started_at) a
        CROSS JOIN LATERAL (
            SELECT x.* FROM {schema}.skips x
            WHERE (x.job_name, x.scope_kind, x.scope_id) = (r.value ->> 0, r.value ->> 1, r.value ->> 2)
              AND x.from_plan_time <= a.started_at + interval '5 s'
            ORDER BY x.from_plan_time DESC LIMIT 50) k
        JOIN {schema}.job_revisions v ON (v.job_name, v.revision) = (k.job_name, k.revision)
        WHERE k.reason = 'not_reported') k
    WHERE k.first <= k.last;
END $$;
COMMENT ON FUNCTION {schema}_internal.unmatched_reports({schema}_internal.locked_schedule[]) IS 'Returns the reports of these schedules that have no execution and did not start in a time that was pruned, at most the 500 oldest of each: job, scope_kind, scope_id, id, started_at. unreported: for each report, the parts of skips not_reported that its start may belong to, with their revision and the plan_times that have an execution. A run may start 5 s before its plan_time, because clocks differ.';

-- Lists are arrays of arrays in JSON, which a client reads faster than arrays of rows. No aggregate is DISTINCT,
-- because PostgreSQL would sort the rows for it, and the order of the schedules counts.
CREATE OR REPLACE FUNCTION {schema}_internal.claim_look(
    runner text, of_queues text[], kinds text[], functions text[], labels text[], tokens uuid[],
    trusted_since timestamptz, sql_commands boolean, jobs_not_to_run text[], max_rows integer,
    jobs_not_to_plan text[], max_due integer, max_woken integer, ahead interval, due_from timestamptz,
    OUT since timestamptz, OUT existing json, OUT schedules json, OUT locked_queues text[], OUT locked_jobs text[],
    OUT jobs json, OUT queue_room json, OUT running json, OUT now timestamptz, OUT retirements json,
    OUT window_starts json, OUT pauses text, OUT pause_at timestamptz, OUT planned_skips json, OUT absences json,
    OUT reports json, OUT unreported json, OUT boots json, OUT more boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    claimed text[];
    woken   {schema}_internal.locked_schedule[] := '{}';
    locked  {schema}_internal.locked_schedule[];
    planned text[];
    limits  text[];
    unusual boolean;  -- one of the schedules is retired or belongs to a host
    ends_at timestamptz;  -- the last instant before pause_at
    paused  text[];
    has_woken boolean;
    skipping boolean;
    reported boolean;
    windowed boolean;
    own_host text := {schema}_internal.host_of(labels);
    seen_hosts text[];
BEGIN
    since := {schema}.db_clock();
    SELECT (SELECT min(p.from_at) FROM {schema}.pauses p WHERE p.begun_at IS NULL AND p.ended_at IS NULL),
           ARRAY(SELECT u.job_name FROM {schema}.unsettled_pauses u),
           -- In most claims no schedule was woken, and this probe costs a hundredth of lock_woken_schedules.
           EXISTS (SELECT FROM {schema}.schedules s WHERE s.woken)
    INTO pause_at, paused, has_woken;
    ends_at := pause_at - interval '1 microsecond';
    pauses := CASE WHEN ends_at < since THEN 'due' WHEN cardinality(paused) > 0 THEN 'unsettled' END;
    IF pauses = 'due' THEN
        RETURN;
    END IF;
    jobs_not_to_plan := jobs_not_to_plan || paused;
    ahead := least(ahead, ends_at - {schema}.db_now());
    SELECT json_agg(json_build_array(
               CASE c.how WHEN 'refused' THEN c.payload END, c.job_name, c.scope_kind, c.scope_id, c.plan_time,
               c.queue, c.id, c.lease_token, c.attempt, c.max_attempts, c.trigger,
               CASE WHEN c.how <> 'refused' THEN c.payload END, c.revision, c.started_at, c.how, c.window_start))
               FILTER (WHERE c.id IS NOT NULL),
           array_agg(c.job_name) FILTER (WHERE c.id IS NOT NULL), bool_or(c.more)
    INTO existing, claimed, more
    FROM {schema}_internal.claim_due(
        runner, of_queues, kinds, functions, labels, tokens, trusted_since, sql_commands, jobs_not_to_run || paused,
        max_rows) c;
    IF has_woken THEN
        woken := ARRAY(SELECT w FROM {schema}_internal.lock_woken_schedules(
            of_queues, jobs_not_to_plan, max_woken) w);
        -- A schedule of another host is planned only while its row in hosts is locked, so that no check-in ends an absence
        -- meanwhile. Its own replica plans what is left out here.
        IF EXISTS (SELECT FROM unnest(woken) s WHERE s.scope_kind = 'host' AND s.scope_id IS DISTINCT FROM own_host) THEN
            seen_hosts := ARRAY(
                SELECT h.name FROM {schema}.hosts h
                WHERE h.name IN (SELECT s.scope_id FROM unnest(woken) s WHERE s.scope_kind = 'host')
                ORDER BY h.name FOR SHARE SKIP LOCKED);
            woken := ARRAY(SELECT s FROM unnest(woken) s
                           WHERE s.scope_kind <> 'host' OR s.scope_id = own_host OR s.scope_id = ANY (seen_hosts));
        END IF;
    END IF;
    -- What exists and what was woken do not wait for what is coming.
    locked := ARRAY(SELECT s FROM {schema}_internal.lock_due_schedules(
        of_queues, own_host, jobs_not_to_plan, max_due,
        CASE WHEN claimed IS NULL AND more IS NOT TRUE AND cardinality(woken) = 0 THEN ahead ELSE interval '0' END, due_from) s) || woken;
    IF claimed IS NULL AND cardinality(locked) = 0 THEN
        RETURN;
    END IF;
    -- After the locks, so that it sees every report that was committed before them. Reports are searched by scope, because
    -- until a vacuum their index keeps entries of reports that have an execution now. OFFSET 0 makes this search one
    -- probe for each schedule. One statement computes all flags, because to start one costs more than to compute them.
    SELECT json_agg(json_build_array(
               s.job_name, s.scope_kind, s.scope_id, s.queue, s.planned_through, s.planned_revision,
               s.next_plan_time, s.retired_at, s.returned_at, s.woken, s.ahead_of, s.address, s.input_watermark)),
           array_agg(s.job_name), array_agg(s.queue), bool_or(s.retired_at IS NOT NULL OR s.scope_kind = 'host'),
           EXISTS (SELECT FROM {schema}.planned_skips p WHERE p.covered_through >= p.from_plan_time),
           bool_or(EXISTS (
               SELECT FROM {schema}.reports r
               WHERE (r.job_name, r.scope_kind, r.scope_id) = (s.job_name, s.scope_kind, s.scope_id) AND r.execution_id IS NULL
               OFFSET 0))
    INTO schedules, planned, limits, unusual, skipping, reported
    FROM unnest(locked) s;
    IF unusual THEN
        retirements := (
            SELECT json_agg(json_build_array(s.job_name, s.scope_kind, s.scope_id, h.retired_at, h.returned_at)
                            ORDER BY h.retired_at)
            FROM unnest(locked) s
            CROSS JOIN LATERAL (
                SELECT h.retired_at, h.returned_at FROM {schema}.scope_retirements h
                WHERE (h.job_name, h.scope_kind, h.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
                  AND (h.returned_at IS NULL OR h.returned_at > s.planned_through)
                OFFSET 0) h
            WHERE s.retired_at IS NOT NULL);
    END IF;
    -- Also after the locks, so that it sees every skip that was planned before them.
    IF skipping THEN
        planned_skips := (
            SELECT json_agg(json_build_array(s.job_name, s.scope_kind, s.scope_id, p.from_plan_time,
                                             p.covered_through, p.reason) ORDER BY p.from_plan_time, p.id)
            FROM unnest(locked) s
            CROSS JOIN LATERAL (
                SELECT p.id, p.from_plan_time, p.covered_through, p.reason FROM {schema}.planned_skips p
                WHERE p.job_name = s.job_name AND p.covered_through > s.planned_through
                  AND p.covered_through >= p.from_plan_time
                  AND (p.scope_id IS NULL OR (p.scope_kind, p.scope_id) = (s.scope_kind, s.scope_id))
                OFFSET 0) p);
    END IF;
    IF reported THEN
        SELECT u.reports, u.unreported INTO reports, unreported FROM {schema}_internal.unmatched_reports(locked) u;
    END IF;
    -- A claim ahead leaves what is limited to a later one, and does not delay that one.
    IF locked[1].ahead_of IS NULL THEN
        locked_queues := ARRAY(
            SELECT q.name FROM {schema}.queues q
            WHERE q.name = ANY (limits) AND q.max_running IS NOT NULL
            ORDER BY q.name FOR NO KEY UPDATE SKIP LOCKED);
        locked_jobs := ARRAY(
            SELECT j.name FROM {schema}.jobs j
            WHERE j.name = ANY (planned) AND j.max_running IS NOT NULL
            ORDER BY j.name FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    SELECT json_agg(json_build_array(
               j.name, j.revision,
               (SELECT r.id FROM {schema}.job_revisions r
                WHERE r.job_name = j.name AND r.revision = j.revision),
               j.retired_at, j.paused_at, j.paused_until, j.handler, j.target ->> 'python', j.source IS NULL,
               j.spec_error, (SELECT l.room FROM {schema}_internal.job_room(j.name, j.max_running) l), j.on)),
           bool_or(j.windows)
    INTO jobs, windowed
    FROM {schema}.jobs j
    WHERE j.name = ANY (claimed || planned);
    IF windowed THEN
        window_starts := (
            SELECT json_agg(json_build_array(s.job_name, s.scope_kind, s.scope_id, w.start))
            FROM unnest(locked) s
            CROSS JOIN LATERAL (SELECT FROM {schema}.jobs j WHERE j.name = s.job_name AND j.windows LIMIT 1) j
            CROSS JOIN LATERAL {schema}_internal.next_window(s.job_name, s.scope_kind, s.scope_id) w(start));
    END IF;
    queue_room := (
        SELECT json_agg(json_build_array(
            q.name, (SELECT l.room FROM {schema}_internal.queue_room(q.name, q.max_running) l)))
        FROM {schema}.queues q
        WHERE q.name = ANY (limits) AND q.max_running IS NOT NULL);
    -- status is a constant, because only then the partial index can be used. Without runs of another scheduler: their ends
    -- may never be reported.
    running := (
        SELECT json_agg(json_build_array(s.job_name, s.scope_kind, s.scope_id, e.plan_time, e.id))
        FROM unnest(locked) s
        CROSS JOIN LATERAL (
            SELECT e.plan_time, e.id FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
              AND e.status = 'RUNNING' AND e.runner_id <> 'observed'
              AND e.plan_time >= coalesce(s.running_from, '-infinity')
            OFFSET 0) e);
    now := least({schema}.db_clock(), ends_at);
    -- The host of this runner is present. The absence of another one lasts at least until now, because its row is locked.
    IF unusual THEN
        absences := (
            SELECT json_agg(json_build_array(s.job_name, s.scope_kind, s.scope_id, a.from_at, a.until_at) ORDER BY a.from_at)
            FROM unnest(locked) s
            CROSS JOIN LATERAL (
                SELECT a.from_at, a.until_at FROM {schema}.host_absences a
                WHERE a.host = s.scope_id AND a.until_at > s.planned_through
                UNION ALL
                SELECT h.checked_in_at, claim_look.now FROM {schema}.hosts h
                WHERE h.name = s.scope_id AND h.name IS DISTINCT FROM own_host AND h.present_through < claim_look.now
                OFFSET 0) a
            WHERE s.scope_kind = 'host');
        boots := (
            SELECT json_agg(json_build_array(s.job_name, s.scope_kind, s.scope_id, b.plan_time, b.booted_at, b.checked_in_at)
                            ORDER BY b.plan_time)
            FROM unnest(locked) s
            CROSS JOIN LATERAL (
                SELECT b.plan_time, b.booted_at, b.checked_in_at FROM {schema}.host_boots b
                WHERE b.host = s.scope_id AND b.plan_time > s.planned_through AND s.job_name = ANY (b.jobs) OFFSET 0) b
            WHERE s.scope_kind = 'host');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.claim_look(text, text[], text[], text[], text[], uuid[], timestamptz, boolean, text[], integer, text[], integer, integer, interval, timestamptz) IS 'Claims executions that exist and are due (claim_due), locks the schedules that the runner has to plan, and reads what the decision about them depends on. since, now: the clock before and after that. existing, schedules: NULL if there are none; then the others are NULL too, except for more: claim_due has left executions that may be due to the next claim, and changed others. locked_queues, locked_jobs: of those that have a limit. retirements, planned_skips, absences and boots (of hosts): those of the schedules that the cursor has not passed. window_starts: where the next windows of the schedules of jobs with windows begin. pauses: due, nothing was claimed, because begin_pauses has to come first; unsettled, jobs were left out, and settle_pauses has to follow; NULL: neither. reports, unreported: see unmatched_reports. pause_at: when the next planned pause begins. Nothing is planned from then on, so now is before it.';
