-- Counts the runners of the last day by state. `lost`: those of them that are replicas, and not workers in another
-- language, which do not report their end. No lock. Zero rows: no replica ran within a day.
SELECT r.state, count(*) AS count, count(*) FILTER (WHERE r.state = 'dead' AND r.version <> 'external') AS lost
FROM {schema}.runner_status r
WHERE r.stale_after > {schema}.db_now() - interval '1 day'
GROUP BY r.state
