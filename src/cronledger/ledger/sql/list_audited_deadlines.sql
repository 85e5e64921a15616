-- Lists the jobs that have or had deadlines, by name, and how far these are computed (NULL: completely). NULL as
-- jobs: all. No lock. Zero rows: there are none.
SELECT h.job_name, min(p.through) AS through
FROM {schema}.job_history h LEFT JOIN {schema}.deadline_progress p ON p.job_name = h.job_name
WHERE h.definition ?| ARRAY['start_by', 'finish_by', 'expect_duration']
  AND (%(jobs)s::text[] IS NULL OR h.job_name = ANY (%(jobs)s::text[]))
GROUP BY h.job_name ORDER BY h.job_name
