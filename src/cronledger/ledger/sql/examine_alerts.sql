-- Finds alerts that no delivery was created for within 5 minutes, deliveries that failed for good in the last day, and
-- channels that jobs name and that do not exist. No lock. One row.
SELECT (SELECT count(*) FROM {schema}.alerts a
        WHERE a.delivery_id IS NULL AND a.at < {schema}.db_now() - interval '5 minutes') AS undelivered,
       (SELECT count(*) FROM {schema}.execution_status e
        WHERE e.queue = 'alerts' AND e.status = 'FAILED' AND e.next_attempt_at IS NULL
          AND e.plan_time > {schema}.db_now() - interval '1 day') AS failed_deliveries,
       (SELECT array_agg(m.channel || ' (job ' || m.job_name || ')' ORDER BY m.channel, m.job_name)
        FROM {schema}.missing_channels m) AS missing
