-- Returns the database's time, the number of schedules (of these jobs; NULL: of all), and the last
-- plan_time whose executions and skips may have been pruned; NULL: nothing was pruned. No lock.
SELECT {schema}.db_now() AS now, {schema}.pruned_through() AS pruned_through,
       (SELECT count(*) FROM {schema}.verify_schedules s
        WHERE %(jobs)s::text[] IS NULL OR s.job_name = ANY (%(jobs)s::text[])) AS schedules
