-- Lists those of these jobs that a live runner can run. No lock. Zero rows: no runner can run any of them.
SELECT j.name FROM {schema}.jobs j
WHERE j.name = ANY (%(jobs)s::text[]) AND {schema}_internal.has_live_runner(j)
