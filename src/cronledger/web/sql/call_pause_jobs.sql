-- Pauses jobs, all or none. Locks: those of the function, by name. One row for each name. False: it was paused
-- already.
SELECT n.name, {schema}.pause(n.name, reason => %(reason)s::text, until => %(until)s::timestamptz,
                              requested_by => %(requested_by)s::text) AS changed
FROM (SELECT x.name FROM unnest(%(names)s::text[]) x(name) ORDER BY x.name COLLATE "C" OFFSET 0) n
