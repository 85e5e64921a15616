-- Lists those of these jobs (NULL: all) that are or were observed, for verify. No lock. Zero rows: none of them.
SELECT DISTINCT h.job_name FROM {schema}.job_history h
WHERE {schema}_internal.may_be_observed(h.definition) AND (%(jobs)s::text[] IS NULL OR h.job_name = ANY (%(jobs)s::text[]))
ORDER BY h.job_name
