-- The database's clock, for a runner that estimates it by its own monotonic one. No lock.
SELECT {schema}.db_clock() AS now
