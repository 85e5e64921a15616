-- Lists rows of the audit trail before one of them, the newest first. A NULL parameter does not restrict. No lock.
-- Zero rows: none matches.
SELECT a.id, a.at, a."session_user" AS role, a.requested_by, a.verb, a.object_kind, a.object, a.job_name, a.revision,
       a.arguments, a.reason, a.outcome, a.error
FROM {schema}.audit a
WHERE (%(before)s::bigint IS NULL OR a.id < %(before)s::bigint)
  AND (%(by)s::text IS NULL OR %(by)s::text IN (a.requested_by, a."session_user"))
  AND (%(verb)s::text IS NULL OR a.verb = %(verb)s::text)
  AND (%(job)s::text IS NULL OR a.job_name = %(job)s::text)
ORDER BY a.id DESC
LIMIT %(max_rows)s
