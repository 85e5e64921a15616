-- Returns the definition and the state of one job, without target and payload. No lock. Zero rows: the job does not
-- exist.
SELECT j.* FROM {schema}.job_details j WHERE j.name = %(job)s
