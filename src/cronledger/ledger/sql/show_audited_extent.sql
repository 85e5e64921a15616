-- The database's time, how many schedules there are (of one job), and since when partitions are without
-- a gap; NULL: there are none. No lock.
SELECT {schema}.db_now() AS now,
       (SELECT count(*) FROM {schema}.verify_schedules s
        WHERE %(jobs)s::text[] IS NULL OR s.job_name = ANY (%(jobs)s::text[])) AS schedules,
       (SELECT max(p.from_plan_time)
        FROM (SELECT q.from_plan_time,
                     lag(q.before_plan_time) OVER (ORDER BY q.from_plan_time) AS before
              FROM {schema}.partitions() q) p
        WHERE p.before IS DISTINCT FROM p.from_plan_time) AS kept_since
