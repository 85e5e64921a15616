-- Partitions of executions, a week each by default, Monday to Monday in UTC. There is no default
-- partition: a later ATTACH would have to scan it.

CREATE OR REPLACE FUNCTION {schema}_internal.create_partition(from_plan_time timestamptz, before_plan_time timestamptz)
RETURNS text LANGUAGE plpgsql SET timezone = 'UTC' SET datestyle = 'ISO' AS $$
DECLARE
    part text := 'executions_p' || to_char(from_plan_time,
        CASE WHEN from_plan_time = date_trunc('day', from_plan_time) THEN 'YYYYMMDD'
             ELSE 'YYYYMMDD"t"HH24MISS' END);
BEGIN
    -- A table of its own first, then ATTACH: that takes SHARE UPDATE EXCLUSIVE on the parent, where
    -- CREATE TABLE … PARTITION OF would stop every claim.
    EXECUTE format('CREATE TABLE {schema}.%I (LIKE {schema}.executions INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
        WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
              autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05,
              autovacuum_vacuum_cost_delay = 0)', part);
    EXECUTE format('ALTER TABLE {schema}.executions ATTACH PARTITION {schema}.%I FOR VALUES FROM (%L) TO (%L)',
                   part, from_plan_time, before_plan_time);
    RETURN part;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_partition(timestamptz, timestamptz) IS 'Creates a partition for plan_times in [from, before), and returns its name.';

CREATE OR REPLACE FUNCTION {schema}_internal.create_partitions(
    first_plan_time timestamptz, last_plan_time timestamptz, seconds double precision)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    epoch constant timestamptz := '2001-01-01 00:00:00+00';  -- a Monday
    width constant interval := make_interval(secs => seconds);  -- no days: theirs differ in length
    at    timestamptz := epoch + floor(extract(epoch FROM first_plan_time - epoch) / seconds) * width;
    upto  timestamptz;
BEGIN
    WHILE at <= last_plan_time LOOP
        SELECT q.before_plan_time INTO upto FROM {schema}.partitions() q
        WHERE q.from_plan_time <= at AND q.before_plan_time > at;
        IF NOT FOUND THEN
            -- To the next line of the grid, or to the next partition (of another width) before it.
            SELECT least(min(q.from_plan_time),
                         epoch + (floor(extract(epoch FROM at - epoch) / seconds) + 1) * width)
            INTO upto FROM {schema}.partitions() q WHERE q.from_plan_time > at;
            RETURN NEXT {schema}_internal.create_partition(at, upto);
        END IF;
        at := upto;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_partitions(timestamptz, timestamptz, double precision) IS 'Creates the partitions that are missing for plan_times in [first, last], on a grid of this width, and returns their names.';

CREATE OR REPLACE FUNCTION {schema}_internal.partition_is_busy(part text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    busy boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM {schema}.%I WHERE status = ''RUNNING'')
                        OR EXISTS (SELECT FROM {schema}.%I WHERE next_attempt_at IS NOT NULL)
                        OR EXISTS (SELECT FROM {schema}.gates g JOIN {schema}.%I e
                                   USING (job_name, scope_kind, scope_id, plan_time))', part, part, part)
    INTO busy;
    RETURN busy;
END $$;
COMMENT ON FUNCTION {schema}_internal.partition_is_busy(text) IS 'Returns whether an execution in this partition is PENDING, RUNNING or awaits a retry.';

-- While DROP waits for its lock, every claim waits behind it. So it waits briefly, and only if the partition
-- can be dropped.
CREATE OR REPLACE FUNCTION {schema}_internal.drop_partition(part text) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
BEGIN
    IF {schema}_internal.partition_is_busy(part) THEN
        RETURN false;
    END IF;
    -- Lock the parent first, as every statement does; DROP would lock it second.
    LOCK TABLE {schema}.executions IN ACCESS EXCLUSIVE MODE;
    IF {schema}_internal.partition_is_busy(part) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE {schema}.%I', part);
    RETURN true;
END $$;
COMMENT ON FUNCTION {schema}_internal.drop_partition(text) IS 'Drops a partition unless an execution in it is PENDING, RUNNING or awaits a retry, and returns whether it was dropped. Raises lock_not_available after 200 ms.';

-- PostgreSQL expects that reading all of a table costs nothing if the table was empty when it was analyzed. A session keeps
-- such a plan while rows arrive. For a table without statistics PostgreSQL assumes ten pages, and uses the indexes. Autovacuum
-- analyzes no table that stays empty; an ANALYZE of the whole database does. Before PostgreSQL 18 a table that has pages of a
-- transaction that was rolled back, and no rows, stays as it is until rows arrive.
CREATE OR REPLACE FUNCTION {schema}_internal.analyzed_while_empty() RETURNS TABLE (name text) LANGUAGE sql STABLE AS $$
    SELECT c.relname::text
    FROM (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = '{schema}.executions'::regclass
          UNION ALL SELECT '{schema}.schedules'::regclass) t(id)
    JOIN pg_class c ON c.oid = t.id
    WHERE c.reltuples = 0
    ORDER BY 1
$$;
COMMENT ON FUNCTION {schema}_internal.analyzed_while_empty() IS 'Lists the partitions of executions, and schedules, if their statistics say that they are empty. Rows may have arrived since.';

-- Before PostgreSQL 18 only a new file removes the statistics. A file without pages has no row of any transaction. While
-- TRUNCATE waits for its lock, every claim waits behind it.
CREATE OR REPLACE FUNCTION {schema}_internal.forget_statistics(of_table text) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '20ms' AS $$
BEGIN
    IF to_regproc('pg_catalog.pg_clear_relation_stats') IS NOT NULL THEN
        EXECUTE format('SELECT pg_clear_relation_stats(%L, %L)', '{schema}', of_table);
        RETURN true;
    END IF;
    EXECUTE format('LOCK TABLE {schema}.%I IN ACCESS EXCLUSIVE MODE', of_table);
    IF pg_relation_size(format('{schema}.%I', of_table)) > 0 THEN
        RETURN false;
    END IF;
    EXECUTE format('TRUNCATE {schema}.%I', of_table);
    RETURN true;
END $$;
COMMENT ON FUNCTION {schema}_internal.forget_statistics(text) IS 'Makes a table that is empty look as if it was never analyzed, and returns whether it did. Raises lock_not_available after 20 ms.';

CREATE OR REPLACE FUNCTION {schema}_internal.create_missing_partitions(plan_times timestamptz[]) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    missing timestamptz;
    seconds double precision;
BEGIN
    LOOP
        WITH p AS MATERIALIZED (SELECT * FROM {schema}.partitions())
        SELECT min(u.at) INTO missing FROM unnest(plan_times) u(at)
        WHERE NOT EXISTS (SELECT FROM p WHERE p.from_plan_time <= u.at AND p.before_plan_time > u.at);
        EXIT WHEN missing IS NULL;
        -- The turn of maintain_partitions, but waited for, because the caller cannot go on without it.
        PERFORM {schema}_internal.await_turn('partitions');
        SELECT coalesce(max(extract(epoch FROM q.before_plan_time - q.from_plan_time)), 604800)
        INTO seconds FROM {schema}.partitions() q;
        RETURN QUERY SELECT m.name FROM {schema}_internal.create_partitions(missing, missing, seconds) m(name);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_missing_partitions(timestamptz[]) IS 'Creates the partitions that are missing for these plan_times, as wide as the widest existing one, and returns their names. Used by claims and backfills, which may need a partition before maintain_partitions has run.';

CREATE OR REPLACE FUNCTION {schema}_internal.gone_since(scope {schema}.schedules) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT least(CASE WHEN scope.returned_at IS NULL THEN scope.retired_at END,
                 (SELECT CASE r.state WHEN 'retired' THEN r.effective_from END
                  FROM {schema}.job_revisions r WHERE r.job_name = scope.job_name ORDER BY r.revision DESC LIMIT 1))
$$;
COMMENT ON FUNCTION {schema}_internal.gone_since({schema}.schedules) IS 'Returns since when the scope is retired, or its job is retired or deleted; NULL: neither. A transaction that changes this locks the row of schedules.';

CREATE OR REPLACE FUNCTION {schema}.maintain_partitions(
    width interval DEFAULT '7 days', ahead interval DEFAULT '28 days')
RETURNS TABLE (action text, subject text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    now_   timestamptz := {schema}.db_now();
    keep   interval := (SELECT r.keep FROM {schema}.retention r);
    reach  interval;
    seen   boolean;
    pruned bigint;
    last   timestamptz;
    gone   tid[];
BEGIN
    PERFORM {schema}_internal.check_maintenance(width, ahead);
    -- One process at a time; the others find the work done when they call it again.
    IF {schema}_internal.take_turn('partitions') IS NOT TRUE THEN
        RETURN;
    END IF;
    SELECT greatest(interval '1 day', least(keep, max(j.catch_up_window))) INTO reach
    FROM {schema}.jobs j HAVING count(*) > 0;
    RETURN QUERY SELECT 'made', m.name FROM {schema}_internal.create_partitions(
        now_ - coalesce(reach, '1 day'), now_ + ahead, floor(extract(epoch FROM width))::float8) m(name);
    -- Not before a row is visible: uncommitted rows count as pages without rows, and the plans for such a
    -- table are bad.
    FOR action, subject IN
        SELECT 'analyzed', q.name FROM {schema}.partitions() q
        JOIN pg_class c ON c.oid = ('{schema}.' || quote_ident(q.name))::regclass
        WHERE c.reltuples < 0 AND pg_relation_size(c.oid) > 0
        UNION ALL
        SELECT 'analyzed', e.name FROM {schema}_internal.analyzed_while_empty() e LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM {schema}.%I)', subject) INTO seen;
        IF seen THEN
            EXECUTE format('ANALYZE {schema}.%I', subject);
            RETURN NEXT;
        END IF;
    END LOOP;
    WITH old AS (
        SELECT k.job_name, k.scope_kind, k.scope_id, k.from_plan_time FROM {schema}.skips k
        WHERE k.through_plan_time < now_ - keep LIMIT 10000 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM {schema}.skips k USING old o
        WHERE (k.job_name, k.scope_kind, k.scope_id, k.from_plan_time)
            = (o.job_name, o.scope_kind, o.scope_id, o.from_plan_time)
        RETURNING k.through_plan_time
    )
    SELECT count(*), max(g.through_plan_time) INTO pruned, last FROM gone g;
    IF pruned > 0 THEN
        PERFORM {schema}_internal.record_pruned(last);
        action := 'pruned'; subject := pruned || ' skips';
        RETURN NEXT;
    END IF;
    -- Nothing before pruned_through() is planned, judged or verified any more.
    DELETE FROM {schema}.scope_retirements h USING (
        SELECT o.job_name, o.scope_kind, o.scope_id, o.retired_at
        FROM {schema}.scope_retirements o
        JOIN {schema}.schedules s USING (job_name, scope_kind, scope_id)
        WHERE o.returned_at <= {schema}.pruned_through() AND o.returned_at <= s.planned_through
        LIMIT 10000 FOR UPDATE OF o SKIP LOCKED) o
    WHERE (h.job_name, h.scope_kind, h.scope_id, h.retired_at)
        = (o.job_name, o.scope_kind, o.scope_id, o.retired_at);
    -- In a cluster of containers each of them may be a host of its own. The turn keeps follow_hosts from returning their
    -- scopes. An edit that would return a scope waits for its lock, and then creates a new scope. The DELETE is a
    -- statement of its own, so it sees every edit that was committed before the schedules were locked.
    IF {schema}_internal.take_turn('hosts') THEN
        gone := ARRAY(SELECT o.ctid FROM {schema}.schedules o
                      WHERE o.scope_kind = 'host' AND o.planned_through <= {schema}.pruned_through()
                        AND {schema}_internal.gone_since(o) <= {schema}.pruned_through()
                      LIMIT 10000 FOR UPDATE SKIP LOCKED);
        WITH removed AS (
            DELETE FROM {schema}.schedules s
            WHERE s.ctid = ANY (gone) AND {schema}_internal.gone_since(s) <= {schema}.pruned_through()
              AND NOT EXISTS (SELECT FROM {schema}.executions e
                              WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id))
              AND NOT EXISTS (SELECT FROM {schema}.skips k
                              WHERE (k.job_name, k.scope_kind, k.scope_id) = (s.job_name, s.scope_kind, s.scope_id))
            RETURNING s.job_name, s.scope_kind, s.scope_id
        ), retirements AS (
            DELETE FROM {schema}.scope_retirements h USING removed r
            WHERE (h.job_name, h.scope_kind, h.scope_id) = (r.job_name, r.scope_kind, r.scope_id)
        )
        DELETE FROM {schema}.windows w USING removed r
        WHERE (w.job_name, w.scope_kind, w.scope_id) = (r.job_name, r.scope_kind, r.scope_id);
    END IF;
    -- An edit that gives a job the scope of a host locks the host, and commits the scope before it frees that lock.
    gone := ARRAY(SELECT h.ctid FROM {schema}.hosts h WHERE h.retired_at < now_ - keep FOR UPDATE SKIP LOCKED);
    DELETE FROM {schema}.hosts h
    WHERE h.ctid = ANY (gone) AND h.name NOT IN (SELECT s.scope_id FROM {schema}.schedules s WHERE s.scope_kind = 'host');
    DELETE FROM {schema}.host_absences a
    WHERE a.until_at <= {schema}.pruned_through() OR a.host NOT IN (SELECT h.name FROM {schema}.hosts h);
    -- The last boot stays, and so does one that is still reported, because the next check-in would count it again.
    DELETE FROM {schema}.host_boots b
    WHERE b.host NOT IN (SELECT h.name FROM {schema}.hosts h)
       OR (greatest(b.plan_time, b.reported_at) <= {schema}.pruned_through() AND EXISTS (
           SELECT FROM {schema}.host_boots n
           WHERE n.host = b.host
             AND coalesce(n.plan_time, n.checked_in_at) > coalesce(b.plan_time, b.checked_in_at)));
    -- The last window of a scope that is kept stays, because the next one begins at its end.
    DELETE FROM {schema}.windows w USING (
        SELECT o.job_name, o.scope_kind, o.scope_id, o.window_end
        FROM {schema}.windows o
        WHERE o.window_end <= {schema}.pruned_through() AND EXISTS (
            SELECT FROM {schema}.windows n
            WHERE (n.job_name, n.scope_kind, n.scope_id) = (o.job_name, o.scope_kind, o.scope_id)
              AND n.window_end > o.window_end)
        ORDER BY o.window_end LIMIT 10000 FOR UPDATE OF o SKIP LOCKED) o
    WHERE (w.job_name, w.scope_kind, w.scope_id, w.window_end)
        = (o.job_name, o.scope_kind, o.scope_id, o.window_end);
    DELETE FROM {schema}.pauses d USING (
        SELECT p.id FROM {schema}.pauses p WHERE coalesce(p.ended_at, p.until_at) < now_ - keep
        LIMIT 10000 FOR UPDATE SKIP LOCKED) p
    WHERE d.id = p.id;
    DELETE FROM {schema}.output_chunks c WHERE c.ctid = ANY (ARRAY(
        SELECT o.ctid FROM {schema}.output_chunks o WHERE o.written_at < now_ - keep LIMIT 10000));
    DELETE FROM {schema}.planned_skips p WHERE p.ctid = ANY (ARRAY(
        SELECT o.ctid FROM {schema}.planned_skips o
        WHERE o.through_plan_time <= {schema}.pruned_through() LIMIT 10000 FOR UPDATE SKIP LOCKED));
    DELETE FROM {schema}.reports r WHERE r.ctid = ANY (ARRAY(
        SELECT o.ctid FROM {schema}.reports o
        WHERE o.started_at <= {schema}.pruned_through() ORDER BY o.started_at LIMIT 10000 FOR UPDATE SKIP LOCKED));
    DELETE FROM {schema}.execution_progress p WHERE p.ctid = ANY (ARRAY(
        SELECT o.ctid FROM {schema}.execution_progress o
        WHERE o.reported_at < now_ - interval '7 days' LIMIT 10000 FOR UPDATE SKIP LOCKED));
    -- Last, because from here to the end of the transaction no other process can use executions. First the drops, which
    -- lock the parent: a claim locks it before the partitions.
    FOR action, subject, last IN
        SELECT 'dropped', q.name, q.before_plan_time - interval '1 microsecond' FROM {schema}.partitions() q
        WHERE q.before_plan_time < now_ - keep LOOP
        BEGIN
            IF {schema}_internal.drop_partition(subject) THEN
                PERFORM {schema}_internal.record_pruned(last);
                RETURN NEXT;
            END IF;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            EXIT;  -- in use; the next call retries
        END;
    END LOOP;
    FOR action, subject IN SELECT 'reset', e.name FROM {schema}_internal.analyzed_while_empty() e LOOP
        BEGIN
            IF {schema}_internal.forget_statistics(subject) THEN
                RETURN NEXT;
            END IF;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            CONTINUE;  -- in use; a later call tries again
        END;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}.maintain_partitions(interval, interval) IS 'Creates partitions ahead, drops partitions older than the retention of the ledger unless an execution in them is PENDING, RUNNING or awaits a retry, prunes skips, planned skips, windows, retirements of scopes, absences and boots of hosts, retired hosts, scopes of hosts if the scope or the job is retired or the job is deleted, pauses, progress and output that dead runners left, and removes statistics according to which a partition or the table schedules is empty. Returns one row per action. Waits at most 2 s for a lock. The statement_timeout of the session applies.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_maintenance(width interval, ahead interval)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    bad text := CASE WHEN width < interval '1 hour' THEN format('partition width %s is less than an hour', width)
                     WHEN ahead < interval '1 day' THEN format('ahead %s is less than a day', ahead) END;
BEGIN
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%', bad
            USING HINT = 'The defaults are 7 days of width, 28 days ahead.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_maintenance(interval, interval) IS 'Raises for arguments that maintain_partitions cannot use.';
