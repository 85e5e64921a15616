-- A replica raises alerts every 10 s, judges a deadline soon after it has passed, and maintains partitions and hours
-- once an hour. A step that ran while no replica was alive is not late.
CREATE OR REPLACE FUNCTION {schema}_internal.late_steps()
RETURNS TABLE (step text, taken_at timestamptz, holder integer, holder_role text, held_since timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT t.step, t.taken_at, a.pid, a.usename::text, a.xact_start
    FROM (VALUES ('alerts', interval '5 minutes', (SELECT p.watching FROM {schema}.alert_progress p)),
                 ('deadlines', interval '5 minutes',
                  {schema}_internal.next_deadline() < {schema}.db_now() - interval '5 minutes'),
                 ('hours', interval '3 hours', true),
                 ('partitions', interval '3 hours', true)) s(step, patience, needed)
    JOIN {schema}.turns t ON t.step = s.step
    -- The transaction that has locked the row is its xmax.
    LEFT JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = t.xmax
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE s.needed AND t.taken_at < {schema}.db_now() - s.patience
      AND EXISTS (SELECT FROM {schema}.runners r
                  WHERE r.version <> 'external' AND r.state = 'running' AND r.stale_after > {schema}.db_now()
                    AND r.started_at < {schema}.db_now() - s.patience)
    ORDER BY t.step
$$;
COMMENT ON FUNCTION {schema}_internal.late_steps() IS 'Returns the steps that have not run for much longer than usual although a replica is alive: alerts, deadlines, hours, partitions. holder: the backend whose transaction has the turn now, its role and the beginning of the transaction; NULL: none.';
