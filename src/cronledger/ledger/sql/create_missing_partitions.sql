-- Creates the partitions that are missing for these plan_times. One row for each: its name.
-- Lock: that of maintain_partitions, waiting. In a transaction of its own.
SELECT m.name FROM {schema}_internal.create_missing_partitions(%(plans)s::timestamptz[]) AS m(name)
