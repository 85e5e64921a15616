-- Resumes a queue. Locks: those of the function. Always one row. False: it was not paused.
SELECT {schema}.resume_queue(%(queue)s::text, requested_by => %(requested_by)s::text) AS value
