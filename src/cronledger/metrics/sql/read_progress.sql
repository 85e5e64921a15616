-- Returns the least share of its work that a running execution of each job has reported as done. No lock. Zero rows: no
-- running execution has reported any.
SELECT r.job_name AS name, min(r.progress_done::double precision / r.progress_total) AS share
FROM {schema}.running r
WHERE r.progress_total > 0
GROUP BY r.job_name
