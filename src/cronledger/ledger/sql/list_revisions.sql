-- How a job was edited, the newest first. No lock. Zero rows: there never was one of that name.
SELECT r.revision, r.effective_from, r.state, r.paused_until, r.requested_by, r.reason
FROM {schema}.job_history r
WHERE r.job_name = %(job)s
ORDER BY r.revision DESC
LIMIT %(max_rows)s
