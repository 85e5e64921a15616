-- Lists the acceptances of violations that hold, for these jobs (NULL: for all). No lock. Zero rows: there
-- are none.
SELECT a.id, a.kind, a.job_name, a.scope_kind, a.scope_id, a.plan_time, a.through_plan_time,
       a.execution_id, a.reason, a.accepted_by, a.accepted_at
FROM {schema}.accepted_violations a
WHERE a.withdrawn_at IS NULL AND (%(jobs)s::text[] IS NULL OR a.job_name = ANY (%(jobs)s::text[]))
ORDER BY a.id
