-- Names, revisions and states of these jobs as they are. No lock.
SELECT j.name, j.revision, j.retired_at IS NOT NULL AS is_retired, j.source
FROM {schema}.jobs j WHERE j.name = ANY (%(jobs)s::text[])
