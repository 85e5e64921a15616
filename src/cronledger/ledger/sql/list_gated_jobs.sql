-- Lists the jobs that require or required others, by name. NULL as jobs: all. No lock. Zero rows: there are none.
SELECT DISTINCT h.job_name FROM {schema}.job_history h
WHERE h.definition ?| ARRAY['requires', 'after']
  AND (%(jobs)s::text[] IS NULL OR h.job_name = ANY (%(jobs)s::text[]))
ORDER BY h.job_name
