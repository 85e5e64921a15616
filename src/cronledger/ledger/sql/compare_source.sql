-- Returns the jobs that a source has or would have: the stored row, whether the source declares the job,
-- and which columns of its definition would differ. These are the columns that make a revision,
-- without those of triggers and of adopt(); the description is not among them. A job that is not stored yet has only its name. `target`, `ping`, and those that the
-- source declares, `new_target` and `new_ping`, have their secrets masked.
-- No lock. Zero rows: the source has no jobs, and had none.
SELECT j.*, coalesce(j.name, r.name) AS name, r.name IS NOT NULL AS declared, j.name IS NOT NULL AS stored,
       ARRAY(SELECT a.key FROM jsonb_object_keys(d.declared || coalesce(d.stored, '{}')) a(key)
             WHERE a.key NOT IN ('description', 'calendar_revision', 'gate_problem', 'adopted_at', 'returned_at')
               AND d.declared -> a.key IS DISTINCT FROM d.stored -> a.key
             ORDER BY 1) AS differs,
       {schema}_internal.masked_target(j.target) AS target, {schema}_internal.masked_target(r.target) AS new_target,
       {schema}_internal.masked_channel(jsonb_build_object('url', j.ping)) ->> 'url' AS ping,
       {schema}_internal.masked_channel(jsonb_build_object('url', r.ping)) ->> 'url' AS new_ping
FROM {schema}.jobs j
FULL JOIN jsonb_populate_recordset(NULL::{schema}.jobs, %(jobs)s) r ON r.name = j.name
CROSS JOIN LATERAL (SELECT {schema}_internal.job_definition(r) AS declared,
                           {schema}_internal.job_definition(j) AS stored OFFSET 0) d
WHERE r.name IS NOT NULL OR (j.source = %(source)s AND j.retired_at IS NULL)
ORDER BY coalesce(j.name, r.name)
