-- The partitions that lack for these plan_times; the names of those made.
-- Lock: as maintain_partitions, waiting; in a transaction of its own.
SELECT m.name FROM {schema}_internal.create_missing_partitions(%(plans)s::timestamptz[]) AS m(name)
