-- Lists the jobs that have a plan_time that is due within an hour, the soonest first: the first plan_time of each, and
-- the number of its scopes; `pause`: the pause in which it lies; `is_cut`: its queue may have more. It reads the due index
-- queue by queue, so that each queue adds at most 3 * max_read rows to those that are searched. A NULL owner or label
-- does not restrict. No lock. Zero rows: nothing is due.
SELECT u.*, (SELECT p.id FROM {schema}.job_pauses p
             WHERE p.job_name = u.job_name AND u.due_at >= p.from_at AND coalesce(u.due_at <= p.until_at, true)
             ORDER BY p.until_at DESC NULLS FIRST, p.id LIMIT 1) AS pause
FROM (
    SELECT u.job_name, u.scope_kind, u.scope_id, u.plan_time, u.due_at, u.due_at - {schema}.db_now() AS due_in,
           j.timezone, j.schedule, q.name AS queue, u.searched >= %(max_read)s AS is_cut,
           count(*) OVER (PARTITION BY u.job_name) AS scopes,
           row_number() OVER (PARTITION BY u.job_name ORDER BY u.due_at, u.scope_kind, u.scope_id) AS place
    FROM {schema}.queue_status q
    CROSS JOIN LATERAL (
        SELECT n.*, count(*) OVER () AS searched
        FROM {schema}_internal.next_firings(q.name, {schema}.db_now() + interval '1 hour', %(max_read)s) n
    ) u
    JOIN {schema}.job_details j ON j.name = u.job_name
    WHERE j.retired_at IS NULL
      AND (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
      AND (%(label)s::text IS NULL OR {schema}_internal.has_label(j.labels, %(label)s::text))
) u
WHERE u.place = 1
ORDER BY u.due_at, u.job_name
LIMIT %(max_rows)s
