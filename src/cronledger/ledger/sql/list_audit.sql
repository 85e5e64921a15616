-- Lists rows of the audit trail, the newest first. A NULL parameter does not restrict. No lock. Zero rows: none
-- matches.
SELECT a.id, a.at, a."session_user", a.requested_by, a.verb, a.object_kind, a.object, a.job_name, a.revision,
       a.execution_ids, a.arguments, a.reason, a.outcome, a.error
FROM {schema}.audit a
WHERE a.at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND (%(by)s::text IS NULL OR %(by)s::text IN (a.requested_by, a."session_user"))
  AND (%(verb)s::text IS NULL OR a.verb = %(verb)s::text)
  AND (%(job)s::text IS NULL OR a.job_name = %(job)s::text)
  AND (%(owner)s::text IS NULL AND %(labels)s::jsonb IS NULL OR a.job_name = ANY (ARRAY(
       SELECT j.name FROM {schema}.job_details j
       WHERE (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
         AND (%(labels)s::jsonb IS NULL OR j.labels @> %(labels)s::jsonb))))
ORDER BY a.at DESC, a.id DESC
LIMIT %(max_rows)s
