-- Returns the target of one job, with secrets masked, for operators. No lock. Zero rows: the job does not exist.
SELECT t.target::text AS target FROM {schema}.job_targets t WHERE t.name = %(job)s
