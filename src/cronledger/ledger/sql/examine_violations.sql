-- Counts the rows of the view violations by kind. No lock. Zero rows: SQL finds no violation.
SELECT v.kind, count(*) AS count FROM {schema}.violations v GROUP BY v.kind ORDER BY v.kind
