-- Lists the jobs that name one of these channels in notify, except for these jobs. One row for each job and channel,
-- with the source of the job. No lock. Zero rows: no other job names one of them.
SELECT DISTINCT j.name AS job_name, r.rule ->> 'channel' AS channel, j.source
FROM {schema}.jobs j CROSS JOIN LATERAL jsonb_array_elements(j.notify) r(rule)
WHERE j.notify IS NOT NULL AND j.retired_at IS NULL AND j.name NOT IN (SELECT g.name FROM unnest(%(jobs)s::text[]) g(name))
  AND r.rule ->> 'channel' = ANY (%(channels)s::text[])
ORDER BY 1, 2
