-- Finds alerts that no delivery was created for within 5 minutes, deliveries that have waited for 5 minutes although
-- nothing is paused, deliveries that failed for good or that the retirement of their channel cancelled in the last day,
-- and channels that jobs name and that do not exist. No lock. One row.
SELECT (SELECT count(*) FROM {schema}.alerts a
        WHERE a.delivery_id IS NULL AND a.at < {schema}.db_now() - interval '5 minutes') AS undelivered,
       (SELECT count(*) FROM {schema}.job_details j
        JOIN {schema}.execution_status e
            ON e.job_name = j.name AND e.next_attempt_at < {schema}.db_now() - interval '5 minutes'
        WHERE j.queue = 'alerts' AND j.retired_at IS NULL
          AND NOT (j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true))
          AND NOT EXISTS (SELECT FROM {schema}.queue_status q
                          WHERE q.name = 'alerts' AND q.paused_at IS NOT NULL)) AS waiting,
       (SELECT count(*) FROM {schema}.execution_status e
        WHERE e.queue = 'alerts' AND e.status = 'FAILED' AND e.next_attempt_at IS NULL
          AND e.plan_time > {schema}.db_now() - interval '1 day') AS failed_deliveries,
       (SELECT count(*)
        FROM (SELECT DISTINCT h.job_name FROM {schema}.job_history h
              WHERE h.state = 'retired' AND h.effective_from > {schema}.db_now() - interval '1 day'
                AND h.job_name >= 'alerts.' AND h.job_name < 'alerts/') d
        JOIN {schema}.execution_status e ON e.job_name = d.job_name
        WHERE e.queue = 'alerts' AND e.status = 'CANCELLED'
          AND e.cancel_requested_at > {schema}.db_now() - interval '1 day') AS cancelled_deliveries,
       (SELECT array_agg(m.channel || ' (job ' || m.job_name || ')' ORDER BY m.channel, m.job_name)
        FROM {schema}.missing_channels m) AS missing
