-- Counts the replicas of the last day by state. Workers are left out, because they do not report their end. No lock. Zero
-- rows: no replica ran within a day.
SELECT r.state, count(*) AS count
FROM {schema}.runner_status r
WHERE r.stale_after > {schema}.db_now() - interval '1 day' AND r.version <> 'external'
GROUP BY r.state
