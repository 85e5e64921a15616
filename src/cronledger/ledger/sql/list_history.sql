-- All revisions of a job, the oldest first, with the columns of its definition except target and payload.
-- No lock. Zero rows: there never was one of that name.
SELECT h.job_name, h.revision AS number, h.effective_from, h.state, h.paused_until AS pause_ends,
       (jsonb_populate_record(NULL::{schema}.jobs, h.definition)).*
FROM {schema}.job_history h
WHERE h.job_name = %(job)s
ORDER BY h.revision
