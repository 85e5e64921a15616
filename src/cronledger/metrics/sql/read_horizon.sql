-- Returns the end of the partitions of executions that follow each other without a gap from now on, or now if there is
-- none for the present. No lock. Always one row.
WITH parts AS (
    SELECT p.from_plan_time, p.before_plan_time,
           p.from_plan_time > coalesce(max(p.before_plan_time) OVER (
               ORDER BY p.from_plan_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), {schema}.db_now()) AS is_after_gap
    FROM {schema}.partitions() p WHERE p.before_plan_time > {schema}.db_now()
)
SELECT coalesce(max(p.before_plan_time), {schema}.db_now()) AS horizon
FROM parts p
WHERE p.from_plan_time < coalesce((SELECT min(g.from_plan_time) FROM parts g WHERE g.is_after_gap), 'infinity')
