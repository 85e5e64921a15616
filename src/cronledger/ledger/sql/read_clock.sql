-- Returns the database's time, for a runner that compares it with its own monotonic clock. No lock.
SELECT {schema}.db_clock() AS now
