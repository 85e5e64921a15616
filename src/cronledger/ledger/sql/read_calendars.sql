-- Returns these revisions of calendars, with their dates. No lock. Zero rows for a revision: somebody has deleted it.
SELECT r.calendar_name, r.revision, r.id, r.first, r.through, r.excluded
FROM unnest(%(names)s::text[], %(revisions)s::bigint[]) AS u(name, revision)
JOIN {schema}.calendar_revisions r ON (r.calendar_name, r.revision) = (u.name, u.revision)
