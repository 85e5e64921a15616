-- Lists the revisions of a job that own plan_times in [start, end), the oldest first: the last one before
-- start, and the first max_rows after it. effective_from never decreases within a job, so the primary key is
-- read from the newest one back to the day. scopes is left out: there may be 100,000. No lock. Zero rows: no
-- such job existed then.
SELECT h.job_name, h.revision, h.effective_from, h.state, h.paused_until,
       h.definition - 'scopes' AS definition, h.requested_by, h.reason
FROM (
    (SELECT b.* FROM {schema}.job_history b
     WHERE b.job_name = %(job)s AND b.effective_from < %(start)s
     ORDER BY b.revision DESC LIMIT 1)
    UNION ALL
    (SELECT w.* FROM {schema}.job_history w
     WHERE w.job_name = %(job)s AND w.effective_from >= %(start)s AND w.effective_from < %(end)s
     ORDER BY w.revision LIMIT %(max_rows)s)
) h
ORDER BY h.revision
