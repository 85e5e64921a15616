CREATE OR REPLACE FUNCTION {schema}_internal.is_reboot(schedule text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT schedule ~* '^[[:space:]]*@reboot[[:space:]]*$'
$$;
COMMENT ON FUNCTION {schema}_internal.is_reboot(text) IS 'Returns whether the plan_times of this schedule are the boots of a host.';

-- Part of the check-ins of a host until its boot has a plan_time. The caller has locked the row of the host.
-- Locks: the schedules of the jobs with @reboot in this host, SKIP LOCKED, because a check-in must not wait for an edit
-- that stays open. Only with all of these locks no cursor passes the plan_time before the boot is committed.
CREATE OR REPLACE FUNCTION {schema}_internal.note_boot(
    of_host text, boot text, booted timestamptz, at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    of_jobs  text[];
    is_scope boolean;
    locked   bigint;
    after    timestamptz;
BEGIN
    INSERT INTO {schema}.host_boots (host, boot_id, booted_at, checked_in_at) VALUES (of_host, boot, booted, at)
    ON CONFLICT DO NOTHING;
    SELECT coalesce(array_agg(j.name ORDER BY j.name), '{}'), coalesce(bool_and(s.job_name IS NOT NULL), true)
    INTO of_jobs, is_scope
    FROM {schema}.jobs j
    LEFT JOIN {schema}.schedules s
        ON (s.job_name, s.scope_kind, s.scope_id) = (j.name, 'host', of_host)
       AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
    WHERE {schema}_internal.is_reboot(j.schedule) AND j.retired_at IS NULL
      AND (s.job_name IS NOT NULL OR j.every <@ (SELECT h.labels FROM {schema}.hosts h WHERE h.name = of_host));
    IF NOT is_scope THEN
        RETURN;  -- follow_hosts makes the host a scope of each of these jobs
    END IF;
    SELECT count(*), max(l.planned_through) INTO locked, after
    FROM (SELECT s.planned_through FROM {schema}.schedules s
          WHERE s.job_name = ANY (of_jobs) AND (s.scope_kind, s.scope_id) = ('host', of_host)
          ORDER BY s.job_name FOR NO KEY UPDATE SKIP LOCKED) l;
    IF locked < cardinality(of_jobs) THEN
        RETURN;
    END IF;
    SELECT greatest({schema}.db_clock(), after, max(b.plan_time)) INTO after
    FROM {schema}.host_boots b WHERE b.host = of_host;
    UPDATE {schema}.host_boots b SET plan_time = date_trunc('second', after) + interval '1 s', jobs = of_jobs
    WHERE b.host = of_host AND b.boot_id = boot;
    UPDATE {schema}.schedules s SET woken = true, parked = NULL, next_due_at = {schema}.db_clock()
    WHERE s.job_name = ANY (of_jobs) AND (s.scope_kind, s.scope_id) = ('host', of_host)
      AND (s.parked = 'boot' OR s.next_due_at IS NOT NULL);
    IF FOUND THEN
        PERFORM pg_notify('{schema}', 'jobs');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.note_boot(text, text, timestamptz, timestamptz) IS 'Records a boot of a host at its first check-in, and makes it a plan_time of the jobs with the schedule @reboot. A later check-in does the second if this host is not yet a scope of each of them, or if one of their schedules is locked.';
