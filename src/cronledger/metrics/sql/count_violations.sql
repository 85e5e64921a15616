-- Counts the violations of the current state by kind. No lock. Zero rows: there are none.
SELECT v.kind, count(*) AS count
FROM {schema}.present_violations v
GROUP BY v.kind
