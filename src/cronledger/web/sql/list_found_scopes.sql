-- Lists the scopes whose id begins with a text, a few of each job, by job and id. Probes the key of each job that has
-- scopes. No lock. Zero rows: none begins with it.
SELECT d.name AS job_name, v.scope_kind, v.scope_id
FROM {schema}.job_details d
CROSS JOIN LATERAL (
    SELECT s.scope_kind, s.scope_id FROM {schema}.verify_schedules s
    WHERE s.job_name = d.name AND s.scope_kind = d.scope_kind
      AND s.scope_id >= %(text)s::text COLLATE "C" AND s.scope_id < (%(text)s::text || chr(1114111)) COLLATE "C"
      AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
    ORDER BY s.scope_id LIMIT %(max_of_job)s
) v
WHERE d.retired_at IS NULL AND d.scope_kind <> 'global'
ORDER BY d.name, v.scope_id
LIMIT %(max_rows)s
