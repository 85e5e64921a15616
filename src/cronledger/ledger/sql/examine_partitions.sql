-- How far partitions of executions reach ahead, and those that were to be dropped two days ago. No
-- lock; one row; NULL: there are none.
SELECT max(q.before_plan_time) - {schema}.db_now() AS ahead, count(*) AS partitions,
       array_agg(q.name ORDER BY q.from_plan_time) FILTER (
           WHERE q.before_plan_time < {schema}.db_now() - %(retention)s::interval - interval '2 days') AS kept
FROM {schema}.partitions() q
