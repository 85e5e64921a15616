-- Rows of the view violations by kind. No lock; zero rows: what SQL can decide of the promises holds.
SELECT v.kind, count(*) AS count FROM {schema}.violations v GROUP BY v.kind ORDER BY v.kind
