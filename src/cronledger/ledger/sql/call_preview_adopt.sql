-- Calls preview_adopt() and returns whether the job would move, and the switches that would be withdrawn. No lock. Always one row.
SELECT a.moves, a.withdrawn FROM {schema}.preview_adopt(%(job)s, %(at)s::timestamptz, %(back)s) a
