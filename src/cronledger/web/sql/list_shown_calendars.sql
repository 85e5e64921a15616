-- Lists the calendars by name, each with its current revision, the number of jobs that use it without retired ones, the
-- names of the first ones, the days until its end, and its next excluded dates without those that are only days of the
-- weekend, as objects with `date` and `name`. No lock. Zero rows: there are none.
SELECT c.name, c.source, r.revision, r.through, r.created_at, r.requested_by, r.through - t.today AS days_left,
       (SELECT count(*) FROM {schema}.job_details j WHERE j.calendar = c.name AND j.retired_at IS NULL) AS jobs,
       ARRAY(SELECT j.name FROM {schema}.job_details j WHERE j.calendar = c.name AND j.retired_at IS NULL
             ORDER BY j.name LIMIT %(max_jobs)s) AS first_jobs,
       ARRAY(SELECT jsonb_build_object('date', d.day, 'name', d.name)
             FROM jsonb_each_text(r.excluded) d(day, name)
             WHERE d.day >= to_char(t.today, 'YYYY-MM-DD') AND d.name <> to_char(d.day::date, 'FMDay')
             ORDER BY d.day COLLATE "C" LIMIT %(max_dates)s) AS next
FROM (SELECT ({schema}.db_now() AT TIME ZONE 'UTC')::date AS today) t
CROSS JOIN {schema}.calendars c
JOIN {schema}.calendar_revisions r ON (r.calendar_name, r.revision) = (c.name, c.revision)
ORDER BY c.name LIMIT %(max_rows)s
