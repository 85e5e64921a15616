CREATE OR REPLACE FUNCTION {schema}_internal.hosts_with(wanted text[]) RETURNS text[] LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT h.name FROM {schema}.hosts h
                 WHERE h.retired_at IS NULL AND h.present_from IS NOT NULL AND wanted <@ h.labels ORDER BY h.name)
$$;
COMMENT ON FUNCTION {schema}_internal.hosts_with(text[]) IS 'Lists the hosts that have these labels, without retired ones.';

-- A retired host matters only to jobs that list it: it has no scope of a job with every. It is found by what is due, so
-- that neither thousands of containers that are gone are read, nor the schedules of these jobs that are not due.
CREATE OR REPLACE FUNCTION {schema}_internal.absent_hosts()
RETURNS TABLE (name text) LANGUAGE sql STABLE ROWS 10 AS $$
    SELECT h.name FROM {schema}.hosts h WHERE h.retired_at IS NULL AND h.present_through < {schema}.db_now()
    UNION
    SELECT h.name
    FROM (
        SELECT s.scope_id FROM {schema}.schedules s
        WHERE coalesce(s.next_due_at, s.next_plan_time) < {schema}.db_now()
          AND (s.next_due_at IS NOT NULL OR s.parked = 'no_runner') AND NOT s.woken AND s.scope_kind = 'host'
        OFFSET 0) s
    CROSS JOIN LATERAL (
        SELECT o.name FROM {schema}.hosts o WHERE o.name = s.scope_id AND o.retired_at IS NOT NULL LIMIT 1) h
    WHERE EXISTS (SELECT FROM {schema}.jobs j
                  WHERE j.scope_kind = 'host' AND j.every IS NULL AND j.retired_at IS NULL)
$$;
COMMENT ON FUNCTION {schema}_internal.absent_hosts() IS 'Lists the hosts that are absent and may have schedules in force.';

-- The host must have been absent since then: until that is checked under the lock of its row, this is a guess.
-- Each search has conditions on both columns of schedules_due, so that it reads no other rows, whatever the statistics.
-- Those that are parked are searched for with the condition of that index. `parked = 'no_runner'` alone would also let
-- PostgreSQL use schedules_parked, and read those of all hosts for each host.
CREATE OR REPLACE FUNCTION {schema}_internal.absent_schedules(most bigint)
RETURNS SETOF {schema}.schedules LANGUAGE sql STABLE ROWS 10 AS $$
    WITH absent AS MATERIALIZED (SELECT h.name FROM {schema}_internal.absent_hosts() h)
    SELECT s.*
    FROM absent h
    CROSS JOIN LATERAL (
        (SELECT s.* FROM {schema}.schedules s
         WHERE {schema}_internal.scope_host(s.scope_kind, s.scope_id) = h.name AND NOT s.woken AND s.next_due_at < {schema}.db_now()
         LIMIT most)
        UNION ALL
        (SELECT s.* FROM {schema}.schedules s
         WHERE {schema}_internal.scope_host(s.scope_kind, s.scope_id) = h.name AND NOT s.woken AND s.next_due_at IS NULL
           AND (s.next_due_at IS NOT NULL OR (s.parked = 'no_runner' AND s.scope_kind = 'host'))
         LIMIT most)) s
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.jobs j
        WHERE j.name = s.job_name AND j.retired_at IS NULL
          AND coalesce(s.next_due_at, s.next_plan_time + j.schedule_delay + j.jitter) + j.grace < {schema}.db_now()
        LIMIT 1) j
$$;
COMMENT ON FUNCTION {schema}_internal.absent_schedules(bigint) IS 'Lists the schedules of absent hosts that have been due for longer than grace, so that another replica has to record the absence. most: how many of each host are considered; NULL: all.';

CREATE OR REPLACE FUNCTION {schema}_internal.hosts_changed() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM {schema}.jobs j
        CROSS JOIN LATERAL {schema}_internal.scope_changes(j.name, 'host', {schema}_internal.hosts_with(j.every)) c
        WHERE j.every IS NOT NULL AND j.retired_at IS NULL)
$$;
COMMENT ON FUNCTION {schema}_internal.hosts_changed() IS 'Returns whether a job with every has other scopes than there are hosts with its labels.';

-- One process at a time, because a list of hosts that is older than another must not replace it. The row of a job
-- is locked before its hosts are listed, in statements of their own: an edit may change its labels.
-- Locks: the turn, hosts by name, SKIP LOCKED; then job by job its row, and its schedules by key.
CREATE OR REPLACE FUNCTION {schema}_internal.follow_hosts(retire_after interval)
RETURNS TABLE (appeared bigint, returned bigint, retired bigint, absent bigint) LANGUAGE plpgsql AS $$
DECLARE
    of_job  text;
    changes record;
BEGIN
    appeared := 0; returned := 0; retired := 0; absent := 0;
    IF {schema}_internal.take_turn('hosts') IS NOT TRUE THEN
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE {schema}.hosts h SET retired_at = {schema}.db_clock(), retired_by = 'hosts_retire_after'
    WHERE h.name IN (SELECT o.name FROM {schema}.hosts o
                     WHERE o.retired_at IS NULL AND o.present_from IS NOT NULL
                       AND o.present_through < {schema}.db_now() - retire_after
                     ORDER BY o.name FOR NO KEY UPDATE SKIP LOCKED);
    FOR of_job IN SELECT j.name FROM {schema}.jobs j WHERE j.every IS NOT NULL AND j.retired_at IS NULL
                  ORDER BY j.name LOOP
        PERFORM FROM {schema}.jobs j WHERE j.name = of_job FOR SHARE;
        SELECT c.* INTO changes
        FROM {schema}.jobs j
        CROSS JOIN LATERAL {schema}_internal.set_scopes(j.name, 'host', {schema}_internal.hosts_with(j.every)) c
        WHERE j.name = of_job AND j.every IS NOT NULL AND j.retired_at IS NULL;
        appeared := appeared + coalesce(changes.appeared, 0);
        returned := returned + coalesce(changes.returned, 0);
        retired := retired + coalesce(changes.retired, 0);
    END LOOP;
    WITH held AS MATERIALIZED (
        SELECT f.* FROM (
            SELECT a.job_name, a.scope_kind, a.scope_id FROM {schema}_internal.absent_schedules(NULL) a
            ORDER BY a.job_name, a.scope_kind, a.scope_id) f
        CROSS JOIN LATERAL (
            SELECT FROM {schema}.schedules s
            WHERE (s.job_name, s.scope_kind, s.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) s
    )
    UPDATE {schema}.schedules s
    SET woken = true, parked = NULL, next_due_at = coalesce(s.next_due_at, {schema}.db_now())
    FROM held h
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (h.job_name, h.scope_kind, h.scope_id)
      AND NOT s.woken AND (s.next_due_at IS NOT NULL OR s.parked = 'no_runner');
    GET DIAGNOSTICS absent = ROW_COUNT;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION {schema}_internal.follow_hosts(interval) IS 'Gives each job with every the hosts that have its labels, retires hosts that have been absent for retire_after, and wakes the schedules of absent hosts that any replica has to plan now (absent). Returns the numbers of changes: zeros if another process does the same.';
