-- Lists the calendars that jobs use, without retired ones, and that end within %(days)s days, the first end first.
-- No lock. Zero rows: there are none.
SELECT c.name, c.source, r.through, r.through < t.today AS is_over, count(*) AS jobs
FROM (SELECT ({schema}.db_now() AT TIME ZONE 'UTC')::date AS today) t
CROSS JOIN {schema}.calendars c
JOIN {schema}.calendar_revisions r ON (r.calendar_name, r.revision) = (c.name, c.revision)
JOIN {schema}.job_details j ON j.calendar = c.name AND j.retired_at IS NULL
WHERE r.through < t.today + %(days)s::integer
GROUP BY c.name, c.source, r.through, t.today
ORDER BY r.through, c.name
