-- Lists the current revisions of these calendars, with their dates. No lock. Zero rows for one: it does not exist.
SELECT r.calendar_name, r.revision, r.first, r.through, r.excluded, r.definition
FROM {schema}.calendars c
JOIN {schema}.calendar_revisions r ON (r.calendar_name, r.revision) = (c.name, c.revision)
WHERE c.name = ANY (%(names)s::text[])
