-- Lists the revisions of a job before a given one, the newest first. scopes is left out: there may be 100,000.
-- No lock. Zero rows: there are no more, or no such job ever existed.
SELECT h.revision, h.effective_from, h.state, h.paused_until, h.requested_by, h.reason,
       h.definition - 'scopes' AS definition
FROM {schema}.job_history h
WHERE h.job_name = %(job)s AND h.revision < %(before)s
ORDER BY h.revision DESC
LIMIT %(max_rows)s
