-- Counts the runners of the last day by state. No lock. Zero rows: no replica ran within a day.
SELECT r.state, count(*) AS count
FROM {schema}.runner_status r
WHERE r.stale_after > {schema}.db_now() - interval '1 day'
GROUP BY r.state
