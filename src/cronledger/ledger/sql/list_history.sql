-- Lists all revisions of a job, the oldest first, with the columns of its definition. target, payload and
-- scopes are NULL: an operator may not read the first two, and there may be 100,000 scopes. LATERAL,
-- because (function()).* as a column calls the function once for each column.
-- No lock. Zero rows: no such job ever existed.
SELECT h.job_name, h.revision AS number, h.effective_from, h.state, h.paused_until AS pause_ends,
       h.requested_by, h.reason, d.*
FROM {schema}.job_history h
CROSS JOIN LATERAL jsonb_populate_record(NULL::{schema}.jobs, h.definition - 'scopes') d
WHERE h.job_name = %(job)s
ORDER BY h.revision
