-- Returns the first plan_time that the oldest partition can hold. No lock. One row; NULL: there is no
-- partition.
SELECT min(p.from_plan_time) AS oldest FROM {schema}.partitions() p
