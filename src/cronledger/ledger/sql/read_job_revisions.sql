-- Returns the revision, the source and the retirement of these jobs. No lock. Zero rows for a job: it does
-- not exist.
SELECT j.name, j.revision, j.retired_at IS NOT NULL AS is_retired, j.source
FROM {schema}.jobs j WHERE j.name = ANY (%(jobs)s::text[])
