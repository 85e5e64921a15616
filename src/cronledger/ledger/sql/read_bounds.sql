-- The plan_times for which partitions exist: [first, before). No lock. NULLs: there are none.
SELECT min(p.from_plan_time), max(p.before_plan_time) FROM {schema}.partitions() p
