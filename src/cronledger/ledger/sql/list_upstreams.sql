-- Returns these jobs, and all jobs that require others, unless they are retired: what decides their plan_times, and what they
-- require. If one of these jobs does not exist, all jobs, whose names may be similar. No lock. Zero rows: there are none.
SELECT j.name, j.source, j.schedule, j.timezone, j.calendar, j.on_excluded, j.day_or, j.dst_gap, j.dst_fold, j.starts_at,
       j.ends_at, j.scope_kind, j.requires, j.after
FROM {schema}.jobs j
WHERE (j.name = ANY (%(jobs)s::text[]) OR j.after IS NOT NULL OR j.requires IS NOT NULL
       OR cardinality(%(jobs)s::text[]) > (SELECT count(*) FROM {schema}.jobs n
                                           WHERE n.name = ANY (%(jobs)s::text[]) AND n.retired_at IS NULL))
  AND j.retired_at IS NULL
