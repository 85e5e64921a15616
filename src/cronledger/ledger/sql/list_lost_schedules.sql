-- Lists scopes that the newest revision of these jobs (NULL: of all) plans and that are missing in
-- schedules, so that their cursor is lost. Scopes of a provider are stored only there, so they are not
-- included. No lock. Zero rows: each scope has its row.
--
-- The sort by revision carries what is needed of a definition, not the definition: with a million
-- jobs, the definitions filled 50 GB of temporary files.
SELECT h.job_name, h.scope_kind, s.scope_id
FROM (SELECT DISTINCT ON (j.job_name) j.job_name, j.state,
             j.definition ->> 'scope_kind' AS scope_kind,
             j.definition ->> 'schedule' IS NOT NULL AS scheduled,
             j.definition -> 'scopes' AS scopes
      FROM {schema}.job_history j
      WHERE %(jobs)s::text[] IS NULL OR j.job_name = ANY (%(jobs)s::text[])
      ORDER BY j.job_name, j.revision DESC) h
CROSS JOIN LATERAL (
    SELECT 'global' AS scope_id WHERE h.scope_kind = 'global'
    UNION ALL
    SELECT jsonb_array_elements_text(h.scopes)
    WHERE h.scope_kind <> 'global' AND jsonb_typeof(h.scopes) = 'array') s
WHERE h.state <> 'retired' AND s.scope_id IS NOT NULL AND h.scheduled
  AND NOT EXISTS (SELECT FROM {schema}.verify_schedules v
                  WHERE (v.job_name, v.scope_kind, v.scope_id)
                      = (h.job_name, h.scope_kind, s.scope_id))
ORDER BY 1, 2, 3
