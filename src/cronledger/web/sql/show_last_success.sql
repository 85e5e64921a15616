-- Returns the last SUCCESS of one scope before a plan_time, with the definition of its revision and of the revision
-- to compare with. The version is that of the runner, while the runner is known. No lock. Zero rows: none succeeded.
SELECT s.id, s.plan_time, s.revision, s.runner_id, s.duration_ms, r.version, h.definition,
       (SELECT n.definition FROM {schema}.job_history n
        WHERE (n.job_name, n.revision) = (%(job)s::text, %(revision)s::bigint)) AS new_definition,
       (SELECT n.version FROM {schema}.runner_status n WHERE n.runner_id = %(runner)s::text) AS new_version
FROM (
    SELECT e.id, e.plan_time, e.revision, e.runner_id, e.duration_ms, e.job_name FROM {schema}.execution_status e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s::text, %(scope_kind)s::text, %(scope_id)s::text)
      AND e.plan_time < %(at)s::timestamptz AND e.status = 'SUCCESS'
    ORDER BY e.plan_time DESC LIMIT 1
) s
LEFT JOIN {schema}.runner_status r ON r.runner_id = s.runner_id
LEFT JOIN {schema}.job_history h ON (h.job_name, h.revision) = (s.job_name, s.revision)
