-- Resumes jobs, all or none. Locks: those of the function, by name. One row for each name. False: it was not paused.
SELECT n.name, {schema}.resume(n.name, requested_by => %(requested_by)s::text) AS changed
FROM (SELECT x.name FROM unnest(%(names)s::text[]) x(name) ORDER BY x.name COLLATE "C" OFFSET 0) n
