-- Lists the alert states that are open, one row for each event of a job or a runner: the one that lasts longest, and the
-- number of its scopes, whatever the number of channels. A NULL parameter does not restrict. No lock. Zero rows: no alert
-- is open.
SELECT a.job_name, a.scope_kind, a.scope_id, a.runner_id, a.event, a.since, a.summary, a.execution_id, a.plan_time,
       a.owner, a.scopes, j.timezone
FROM (
    SELECT n.*, count(*) OVER (PARTITION BY n.job_name, n.runner_id, n.event) AS scopes,
           row_number() OVER (PARTITION BY n.job_name, n.runner_id, n.event
                              ORDER BY n.since, n.scope_kind, n.scope_id) AS place
    FROM (SELECT DISTINCT ON (v.job_name, v.runner_id, v.event, v.scope_kind, v.scope_id) v.*
          FROM {schema}.alert_states v
          WHERE (%(owner)s::text IS NULL OR v.owner = %(owner)s::text)
            AND (%(label)s::text IS NULL OR {schema}_internal.has_label(v.labels, %(label)s::text))
          ORDER BY v.job_name, v.runner_id, v.event, v.scope_kind, v.scope_id, v.since) n
) a
LEFT JOIN {schema}.job_details j ON j.name = a.job_name
WHERE a.place = 1
ORDER BY a.since, a.job_name, a.runner_id, a.event
LIMIT %(max_rows)s
