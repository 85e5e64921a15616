-- Lists scopes that the newest revision of these jobs (NULL: of all) plans and that are missing in
-- schedules, so that their cursor is lost. Scopes of a provider are stored only there, so they are not
-- included. No lock. Zero rows: each scope has its row.
SELECT h.job_name, h.definition ->> 'scope_kind' AS scope_kind, s.scope_id
FROM (SELECT DISTINCT ON (j.job_name) j.job_name, j.state, j.definition
      FROM {schema}.job_history j
      WHERE %(jobs)s::text[] IS NULL OR j.job_name = ANY (%(jobs)s::text[])
      ORDER BY j.job_name, j.revision DESC) h
CROSS JOIN LATERAL (
    SELECT 'global' AS scope_id WHERE h.definition ->> 'scope_kind' = 'global'
    UNION ALL
    SELECT jsonb_array_elements_text(h.definition -> 'scopes')
    WHERE h.definition ->> 'scope_kind' <> 'global' AND jsonb_typeof(h.definition -> 'scopes') = 'array') s
WHERE h.state <> 'retired' AND s.scope_id IS NOT NULL AND h.definition ->> 'schedule' IS NOT NULL
  AND NOT EXISTS (SELECT FROM {schema}.verify_schedules v
                  WHERE (v.job_name, v.scope_kind, v.scope_id)
                      = (h.job_name, h.definition ->> 'scope_kind', s.scope_id))
ORDER BY 1, 2, 3
