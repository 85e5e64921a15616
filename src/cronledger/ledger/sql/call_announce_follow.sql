-- Announces to the replicas that somebody follows the output of this execution, so that they write it at once. They
-- remember it for a while. No lock. Always one row.
SELECT pg_notify('{schema}', 'follow ' || %(id)s::bigint) AS value
