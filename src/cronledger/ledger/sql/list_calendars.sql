-- Lists the calendars by name, each with its current revision and the number of jobs that use it, without
-- retired ones. NULL does not restrict. No lock. Zero rows: there are none.
SELECT c.name, r.revision, r.first, r.through, (SELECT count(*) FROM jsonb_object_keys(r.excluded)) AS excluded,
       (SELECT count(*) FROM {schema}.job_details j WHERE j.calendar = c.name AND j.retired_at IS NULL) AS jobs,
       c.source, r.created_at, r.requested_by
FROM {schema}.calendars c
JOIN {schema}.calendar_revisions r ON (r.calendar_name, r.revision) = (c.name, c.revision)
WHERE %(calendar)s::text IS NULL OR c.name = %(calendar)s::text
ORDER BY c.name
