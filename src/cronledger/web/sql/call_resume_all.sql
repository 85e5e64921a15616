-- Resumes every paused queue. Locks: those of the function. Always one row: how many there were.
SELECT {schema}.resume_all(requested_by => %(requested_by)s::text) AS value
