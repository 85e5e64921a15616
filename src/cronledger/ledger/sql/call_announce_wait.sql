-- Announces to the replicas that a program waits for this execution, so that they notify it of the end
-- (notify_ended). They remember it for a while. No lock. Always one row.
SELECT pg_notify('{schema}', 'wait ' || %(id)s::bigint) AS value
