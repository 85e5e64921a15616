-- Returns the target of one job, with secrets masked, and its payload; for operators and runners. No lock.
-- Zero rows: the job does not exist.
SELECT t.target, t.payload FROM {schema}.job_targets t WHERE t.name = %(job)s
