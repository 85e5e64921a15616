-- Shows a revision of a calendar with its dates; NULL: the current one. No lock. Zero rows: there is none.
SELECT r.calendar_name, r.revision, r.first, r.through, r.excluded, r.definition, r.created_at, r.requested_by
FROM {schema}.calendars c
JOIN {schema}.calendar_revisions r ON r.calendar_name = c.name
WHERE c.name = %(calendar)s AND r.revision = coalesce(%(revision)s::bigint, c.revision)
