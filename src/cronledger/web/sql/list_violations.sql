-- Lists the violations of the present state. A NULL parameter does not restrict. No lock. Zero rows: there are none.
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail, j.timezone
FROM {schema}.present_violations v
LEFT JOIN {schema}.job_details j ON j.name = v.job_name
WHERE (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(j.labels, %(label)s::text))
ORDER BY v.plan_time DESC NULLS LAST, v.kind
LIMIT %(max_rows)s
