-- Lists the revisions of a calendar, the newest first. No lock. Zero rows: the calendar does not exist.
SELECT r.calendar_name, r.revision, r.created_at, r.first, r.through, r.requested_by,
       (SELECT count(*) FROM jsonb_object_keys(r.excluded)) AS excluded
FROM {schema}.calendar_revisions r
WHERE r.calendar_name = %(calendar)s
ORDER BY r.revision DESC
LIMIT %(max_rows)s
