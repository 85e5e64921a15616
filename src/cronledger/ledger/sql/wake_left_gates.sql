-- Makes at most max_rows gates due to be checked whose required job has gone on without waking them: see
-- unblocked_gates. Lock: gates by key, SKIP LOCKED. One row for each gate. Fewer rows than max_rows: the others are
-- locked, or there are none.
WITH held AS MATERIALIZED (
    SELECT f.* FROM (
        SELECT u.* FROM (
            SELECT u.job_name, u.scope_kind, u.scope_id, u.plan_time FROM {schema}_internal.unblocked_gates(NULL) u
            LIMIT %(max_rows)s) u
        ORDER BY u.job_name, u.scope_kind, u.scope_id, u.plan_time) f
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.gates g
        WHERE (g.job_name, g.scope_kind, g.scope_id, g.plan_time) = (f.job_name, f.scope_kind, f.scope_id, f.plan_time)
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) g
)
UPDATE {schema}.gates g SET check_at = {schema}.db_now()
FROM held h
WHERE (g.job_name, g.scope_kind, g.scope_id, g.plan_time) = (h.job_name, h.scope_kind, h.scope_id, h.plan_time)
RETURNING g.job_name, g.scope_kind, g.scope_id
