-- The database's time, how many schedules there are (of these jobs; NULL: of all), and up to which
-- plan_time executions and skips may have been pruned; NULL: none was. No lock.
SELECT {schema}.db_now() AS now, {schema}.pruned_through() AS pruned_through,
       (SELECT count(*) FROM {schema}.verify_schedules s
        WHERE %(jobs)s::text[] IS NULL OR s.job_name = ANY (%(jobs)s::text[])) AS schedules
