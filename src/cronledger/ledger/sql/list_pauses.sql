-- Lists pauses: first those in force, then planned ones, then, if `over`, the others, the latest first. No lock.
-- Zero rows: there are none.
SELECT p.id, p.state, p.job_name, p.queue, p.owner, p.labels, p.from_at, p.until_at, p.reason, p.requested_by,
       p.created_at, p.begun_at, p.ended_at, p.ended_by, p.jobs
FROM {schema}.pause_status p
WHERE %(over)s::boolean OR p.state IN ('in force', 'planned')
ORDER BY array_position('{in force,planned}', p.state),
         CASE WHEN p.state IN ('in force', 'planned') THEN p.from_at END, p.id DESC
LIMIT %(max_rows)s::integer
