-- Partitions of executions, a week each by default, Monday to Monday in UTC. There is no default
-- partition: a later ATTACH would have to scan it.

CREATE OR REPLACE FUNCTION {schema}.partitions()
RETURNS TABLE (name text, from_plan_time timestamptz, before_plan_time timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT c.relname::text,
           (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\)'))[1]::timestamptz,
           (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = '{schema}.executions'::regclass
    ORDER BY 2
$$;
COMMENT ON FUNCTION {schema}.partitions() IS 'Partitions of executions: name, first plan_time, and the instant before which the last one lies.';

CREATE OR REPLACE FUNCTION {schema}.make_partition(from_plan_time timestamptz, before_plan_time timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    part text := 'executions_p' || to_char(from_plan_time AT TIME ZONE 'UTC', 'YYYYMMDD"t"HH24');
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
COMMENT ON FUNCTION {schema}.make_partition(timestamptz, timestamptz) IS 'A partition for plan_times in [from, before); answers its name.';

CREATE OR REPLACE FUNCTION {schema}.drop_partition(part text, before_plan_time timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    busy boolean;
BEGIN
    EXECUTE format('LOCK TABLE {schema}.%I IN SHARE ROW EXCLUSIVE MODE', part);
    EXECUTE format('SELECT EXISTS (SELECT FROM {schema}.%I WHERE status = ''RUNNING'')
                        OR EXISTS (SELECT FROM {schema}.%I WHERE next_attempt_at IS NOT NULL)', part, part)
    INTO busy;
    IF NOT busy THEN
        EXECUTE format('DROP TABLE {schema}.%I', part);
    END IF;
    RETURN NOT busy;
END $$;
COMMENT ON FUNCTION {schema}.drop_partition(text, timestamptz) IS 'Drops a partition unless it holds a PENDING, RUNNING or retryable execution; answers whether it did.';

-- Answers what it did: one row per partition made or dropped, per table analyzed, or for skips pruned.
CREATE OR REPLACE FUNCTION {schema}.maintain_partitions(
    retention interval DEFAULT '90 days', width interval DEFAULT '7 days', ahead interval DEFAULT '28 days')
RETURNS TABLE (action text, subject text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    epoch  constant timestamptz := '2001-01-01 00:00:00+00';  -- a Monday
    now_   timestamptz := {schema}.db_now();
    first  timestamptz;
    at     timestamptz;
    upto   timestamptz;
    span   double precision := extract(epoch FROM width);
    p      record;
    pruned bigint;
BEGIN
    IF span < 3600 THEN
        RAISE EXCEPTION 'partition width % is less than an hour', width
            USING HINT = 'Use 1 day or more.', ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One at a time; the others come back later and find the work done.
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.maintain_partitions', 0)) THEN
        RETURN;
    END IF;
    SELECT now_ - greatest(interval '1 day', least(retention, coalesce(max(j.catch_up_window), '1 day'))) INTO first
    FROM {schema}.jobs j;
    at := epoch + floor(extract(epoch FROM first - epoch) / span) * width;
    WHILE at <= now_ + ahead LOOP
        SELECT min(q.from_plan_time) INTO upto FROM {schema}.partitions() q
        WHERE q.from_plan_time > at AND q.from_plan_time < at + width;
        upto := coalesce(upto, at + width);
        SELECT q.before_plan_time INTO first FROM {schema}.partitions() q
        WHERE q.from_plan_time <= at AND q.before_plan_time > at;
        IF FOUND THEN
            at := first;
            CONTINUE;
        END IF;
        action := 'made'; subject := {schema}.make_partition(at, upto);
        RETURN NEXT;
        at := upto;
    END LOOP;
    FOR p IN SELECT q.* FROM {schema}.partitions() q WHERE q.before_plan_time < now_ - retention LOOP
        BEGIN
            IF {schema}.drop_partition(p.name, p.before_plan_time) THEN
                action := 'dropped'; subject := p.name;
                RETURN NEXT;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            NULL;  -- busy now; next time
        END;
    END LOOP;
    FOR p IN SELECT q.name FROM {schema}.partitions() q JOIN pg_class c
                 ON c.oid = ('{schema}.' || quote_ident(q.name))::regclass
             WHERE c.reltuples < 0 AND q.from_plan_time <= now_ LOOP
        EXECUTE format('ANALYZE {schema}.%I', p.name);
    END LOOP;
    WITH old AS (
        SELECT k.job_name, k.scope_kind, k.scope_id, k.from_plan_time FROM {schema}.skips k
        WHERE k.through_plan_time < now_ - retention LIMIT 10000 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM {schema}.skips k USING old o
    WHERE (k.job_name, k.scope_kind, k.scope_id, k.from_plan_time)
        = (o.job_name, o.scope_kind, o.scope_id, o.from_plan_time);
    GET DIAGNOSTICS pruned = ROW_COUNT;
    IF pruned > 0 THEN
        action := 'pruned'; subject := pruned || ' skips';
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION {schema}.maintain_partitions(interval, interval, interval) IS 'Makes partitions ahead, drops those behind retention that hold no PENDING, RUNNING or retryable execution, prunes skips. Waits at most 2 s for a lock. One row per action.';
