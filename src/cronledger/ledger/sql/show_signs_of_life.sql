-- Returns the last sign of a runner up to an instant and the first one after it, from the executions and
-- runners of a day around it, and the runners that were seen both before and after. No lock. One row;
-- NULL: there is no sign. Reads the partitions of two days completely.
WITH signs AS (
    SELECT unnest(ARRAY[e.started_at, e.heartbeat_at, e.finished_at]) AS at
    FROM {schema}.execution_status e
    WHERE e.plan_time BETWEEN %(at)s - interval '1 day' AND %(at)s + interval '1 day'
    UNION ALL
    SELECT unnest(ARRAY[r.started_at, r.heartbeat_at]) FROM {schema}.runner_status r
)
SELECT (SELECT max(s.at) FROM signs s WHERE s.at <= %(at)s) AS before,
       (SELECT min(s.at) FROM signs s WHERE s.at > %(at)s) AS after,
       ARRAY(SELECT r.runner_id FROM {schema}.runner_status r
             WHERE r.started_at <= %(at)s AND r.heartbeat_at >= %(at)s ORDER BY 1) AS alive
