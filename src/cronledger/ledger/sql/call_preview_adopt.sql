-- Calls preview_adopt() and returns the adoption or return that would be withdrawn. No lock. Always one row.
SELECT a.withdrawn FROM {schema}.preview_adopt(%(job)s, %(at)s::timestamptz, %(back)s) a
