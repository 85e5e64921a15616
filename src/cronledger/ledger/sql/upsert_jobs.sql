-- Makes the jobs of a source equal to its declarations. A pause stays; a retirement ends. One row for each
-- job that is the source's own: its name and revision. A job that does not come back belongs to another
-- source. `policies`: the columns of `Job` except its name, which `queries` fills in.
-- Lock: jobs by name, then by trigger their schedules.
INSERT INTO {schema}.jobs AS j (name, {policies}, source, deploy, edited_by)
SELECT r.name, {policies}, %(source)s, %(deploy)s, %(requested_by)s
FROM jsonb_populate_recordset(NULL::{schema}.jobs, %(jobs)s) r
ORDER BY r.name
ON CONFLICT (name) DO UPDATE
SET ({policies}) = ROW({excluded_policies}),
    source = EXCLUDED.source, deploy = EXCLUDED.deploy, edited_by = EXCLUDED.edited_by, retired_at = NULL
WHERE j.source IS NULL OR j.source = EXCLUDED.source OR j.retired_at IS NOT NULL
RETURNING j.name, j.revision
