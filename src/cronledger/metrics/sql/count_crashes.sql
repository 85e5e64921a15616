-- Counts the attempts that ended because their runner vanished, and that were last seen within a day. No lock. Always
-- one row.
SELECT count(*) AS count
FROM {schema}.crashes c
WHERE c.last_seen > {schema}.db_now() - interval '1 day'
