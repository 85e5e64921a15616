-- Lists the revisions of a job, the newest first. No lock. Zero rows: no such job ever existed.
SELECT r.revision, r.effective_from, r.state, r.paused_until, r.requested_by, r.reason
FROM {schema}.job_history r
WHERE r.job_name = %(job)s
ORDER BY r.revision DESC
LIMIT %(max_rows)s
