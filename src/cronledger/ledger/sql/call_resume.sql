-- Resumes a job. Locks: those of the function. Always one row. False: the job was not paused.
SELECT {schema}.resume(%(job)s::text) AS value
