-- Lists the pauses that apply in [since, until), planned ones as well, the first one first, at most max_rows. ends_at:
-- when it ended or will end (NULL: its end is open). No lock. Zero rows: there are none.
SELECT p.id, p.state, p.job_name, p.queue, p.owner, p.labels, p.from_at, p.until_at, p.reason, p.requested_by,
       least(p.ended_at, p.until_at) AS ends_at
FROM {schema}.pause_status p
WHERE p.state <> 'withdrawn' AND p.from_at < %(until)s::timestamptz
  AND coalesce(least(p.ended_at, p.until_at) > %(since)s::timestamptz, true)
ORDER BY p.from_at, p.id
LIMIT %(max_rows)s
