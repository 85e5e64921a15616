-- Lists the states of jobs for a preview: those with these names, or those that match the filters of the page Jobs.
-- `is_paused`: also of a job that is broken.
-- `among`: the jobs with a result; NULL: any.
-- No lock. Zero rows: none matches.
SELECT o.name, o.state, o.paused_at IS NOT NULL AND coalesce(o.paused_until > {schema}.db_now(), true) AS is_paused,
       o.paused_by, o.paused_reason
FROM {schema}.job_details o
WHERE (%(names)s::text[] IS NULL OR o.name = ANY (%(names)s::text[]))
  AND (%(search)s::text IS NULL OR strpos(lower(o.name), lower(%(search)s::text)) > 0)
  AND (%(queue)s::text IS NULL OR o.queue = %(queue)s::text)
  AND (%(source)s::text IS NULL OR o.source = %(source)s::text)
  AND (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(o.labels, %(label)s::text))
  AND (%(among)s::text[] IS NULL OR o.name = ANY (%(among)s::text[]))
  AND (%(result)s::text IS DISTINCT FROM 'never ran'
       OR (SELECT e.id FROM {schema}.execution_status e WHERE e.job_name = o.name LIMIT 1) IS NULL)
  AND (%(names)s::text[] IS NOT NULL OR coalesce(o.state = %(state)s::text, o.retired_at IS NULL))
ORDER BY o.name
LIMIT %(max_rows)s
