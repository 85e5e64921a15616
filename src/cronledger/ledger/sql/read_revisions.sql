-- Returns the revisions of each job from the given one on, the oldest first: state and definition. The
-- first is the one in force at the cursor, or an older one. JSON is returned as text, because one value
-- that cannot be read must not cost the other jobs their rows. scopes is NULL: there may be 100,000, and
-- no claim reads them; nor does one read payload_schema and notify. calendar_id: the id of the revision of its calendar. LATERAL, because (function()).*
-- as a column calls the function once for each column. Zero rows for a job: it never existed.
SELECT r.job_name, r.revision AS number, r.id AS revision_id, r.effective_from, r.state, r.paused_until AS pause_ends,
       d.*,
       nullif((r.definition -> 'payload')::text, 'null') AS payload_json,
       (r.definition -> 'target')::text AS target_json,
       CASE WHEN d.calendar IS NOT NULL THEN (
           SELECT c.id FROM {schema}.calendar_revisions c
           WHERE (c.calendar_name, c.revision) = (d.calendar, d.calendar_revision)) END AS calendar_id
FROM unnest(%(jobs)s::text[], %(revisions)s::bigint[]) AS u(name, revision)
JOIN {schema}.job_revisions r ON r.job_name = u.name AND r.revision >= u.revision
CROSS JOIN LATERAL jsonb_populate_record(
    NULL::{schema}.jobs, r.definition - ARRAY['payload', 'target', 'scopes', 'payload_schema', 'notify']) d
ORDER BY r.job_name, r.revision
