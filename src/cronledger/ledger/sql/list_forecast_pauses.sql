-- Lists the pauses that are planned or in force, with what they select, the first one first. No lock. Zero rows: there
-- are none.
SELECT p.job_name, p.queue, p.owner, p.labels, p.from_at, p.until_at
FROM {schema}.pause_status p WHERE p.state IN ('in force', 'planned')
ORDER BY p.from_at, p.id
LIMIT %(max_rows)s
