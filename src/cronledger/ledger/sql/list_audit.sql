-- Lists rows of the audit trail before one of them, the newest first. A NULL parameter does not restrict. At most
-- max_read rows, of the job if there is one, are read by the indexes that have (at, id). If the last of these is
-- reached before max_rows, it is listed too, with is_last_read, whether it matches or not. No lock. Zero rows: none
-- matches.
SELECT r.id, r.at, r."session_user", r.requested_by, r.verb, r.object_kind, r.object, r.job_name, r.revision,
       r.execution_ids[1:%(max_executions)s] AS execution_ids, r.arguments, r.reason, r.outcome, r.error, r.is_match,
       coalesce(r.place = %(max_read)s::bigint, false) AS is_last_read
FROM (
    SELECT n.*, row_number() OVER (ORDER BY n.at DESC, n.id DESC) AS place,
           (%(by)s::text IS NULL OR %(by)s::text IN (n.requested_by, n."session_user"))
           AND (%(verb)s::text IS NULL OR n.verb = %(verb)s::text)
           AND (%(owner)s::text IS NULL AND %(label)s::text IS NULL AND %(labels)s::jsonb IS NULL
                OR coalesce(n.job_name IN (
                    SELECT d.name FROM {schema}.job_details d
                    WHERE (%(owner)s::text IS NULL OR d.owner = %(owner)s::text)
                      AND (%(label)s::text IS NULL OR {schema}_internal.has_label(d.labels, %(label)s::text))
                      AND (%(labels)s::jsonb IS NULL OR d.labels @> %(labels)s::jsonb)), false)) AS is_match
    FROM (
        SELECT a.id, a.at, a."session_user", a.requested_by, a.verb, a.object_kind, a.object, a.job_name, a.revision,
               a.execution_ids, a.arguments, a.reason, a.outcome, a.error
        FROM {schema}.audit a
        WHERE (%(before)s::bigint IS NULL
               OR (a.at, a.id) < (%(before_at)s::timestamptz, %(before)s::bigint))
          AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s::timestamptz)
          AND (%(job)s::text IS NULL OR a.job_name = %(job)s::text)
        ORDER BY a.at DESC, a.id DESC
        LIMIT %(max_read)s::bigint
    ) n
    ORDER BY n.at DESC, n.id DESC  -- so that rows are searched only until there are max_rows
) r
WHERE r.is_match OR r.place = %(max_read)s::bigint
ORDER BY r.at DESC, r.id DESC
LIMIT %(max_rows)s
