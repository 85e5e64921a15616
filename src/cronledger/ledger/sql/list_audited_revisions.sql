-- Lists the revisions of these jobs, by job and revision. No lock. Zero rows for a job: it never existed.
SELECT h.job_name, h.revision, h.effective_from, h.state, h.paused_until, h.definition
FROM {schema}.job_history h
WHERE h.job_name = ANY (%(jobs)s::text[])
ORDER BY h.job_name, h.revision
