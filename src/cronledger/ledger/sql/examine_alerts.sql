-- Finds alerts that no delivery was created for within 5 minutes, deliveries that have waited for 5 minutes although
-- their channels are not paused, deliveries that failed for good in the last day, and channels that jobs name and that
-- do not exist. No lock. One row.
SELECT (SELECT count(*) FROM {schema}.alerts a
        WHERE a.delivery_id IS NULL AND a.at < {schema}.db_now() - interval '5 minutes'
          AND NOT EXISTS (SELECT FROM {schema}.channel_status c WHERE c.name = a.channel AND c.paused_at IS NOT NULL)
       ) AS undelivered,
       (SELECT count(*) FROM {schema}.delivery_status d
        WHERE d.due_at < {schema}.db_now() - interval '5 minutes'
          AND NOT EXISTS (SELECT FROM {schema}.channel_status c WHERE c.name = d.channel AND c.paused_at IS NOT NULL)
       ) AS waiting,
       (SELECT count(*) FROM {schema}.delivery_status d
        WHERE d.status = 'FAILED' AND d.due_at IS NULL AND d.requested_by IS NULL
          AND d.finished_at > {schema}.db_now() - interval '1 day') AS failed_deliveries,
       (SELECT array_agg(m.channel || ' (job ' || m.job_name || ')' ORDER BY m.channel, m.job_name)
        FROM {schema}.missing_channels m) AS missing
