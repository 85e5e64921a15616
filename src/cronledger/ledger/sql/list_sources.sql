-- Lists the sources by name. No lock. Zero rows: nothing was applied.
SELECT s.source, s.deploy, s.jobs, s.host, s.applied_at, s.applied_by
FROM {schema}.source_status s
ORDER BY s.source
