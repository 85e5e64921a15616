-- What one job runs, with secrets masked, and its payload; for operators and runners. No lock. Zero rows:
-- there is none of that name.
SELECT t.target, t.payload FROM {schema}.job_targets t WHERE t.name = %(job)s
