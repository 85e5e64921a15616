-- Returns the last sign of a runner up to an instant and the first one after it, from the executions and
-- runners of a day around it, and the runners that were seen both before and after. No lock. One row;
-- NULL: no runner left a sign. The statement reads all executions of two days.
SELECT greatest(e.before, r.before) AS before, least(e.after, r.after) AS after, r.alive
FROM (
    SELECT max(greatest(CASE WHEN x.started_at <= %(at)s THEN x.started_at END,
                        CASE WHEN x.heartbeat_at <= %(at)s THEN x.heartbeat_at END,
                        CASE WHEN x.finished_at <= %(at)s THEN x.finished_at END)) AS before,
           min(least(CASE WHEN x.started_at > %(at)s THEN x.started_at END,
                     CASE WHEN x.heartbeat_at > %(at)s THEN x.heartbeat_at END,
                     CASE WHEN x.finished_at > %(at)s THEN x.finished_at END)) AS after
    FROM {schema}.execution_status x
    WHERE x.plan_time BETWEEN %(at)s - interval '1 day' AND %(at)s + interval '1 day'
) e
CROSS JOIN (
    SELECT max(greatest(CASE WHEN x.started_at <= %(at)s THEN x.started_at END,
                        CASE WHEN x.heartbeat_at <= %(at)s THEN x.heartbeat_at END)) AS before,
           min(least(CASE WHEN x.started_at > %(at)s THEN x.started_at END,
                     CASE WHEN x.heartbeat_at > %(at)s THEN x.heartbeat_at END)) AS after,
           coalesce(array_agg(x.runner_id ORDER BY x.runner_id)
                    FILTER (WHERE x.started_at <= %(at)s AND x.heartbeat_at >= %(at)s), '{}') AS alive
    FROM {schema}.runner_status x
) r
