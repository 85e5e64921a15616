CREATE OR REPLACE VIEW {schema}.source_status AS
SELECT s.name AS source, s.deploy, s.applied_at, s.applied_by,
       (SELECT count(*)::integer FROM {schema}.jobs j
        WHERE j.source = s.name AND j.retired_at IS NULL) AS jobs,
       s.host
FROM {schema}.sources s;
COMMENT ON VIEW {schema}.source_status IS 'The files and Apps that were applied.';
COMMENT ON COLUMN {schema}.source_status.source IS 'Name of the source: the path of a file, package.module:app, the name of an App, or the value of --source.';
COMMENT ON COLUMN {schema}.source_status.deploy IS 'Ordered version of the deployment that was applied last; NULL: none was given.';
COMMENT ON COLUMN {schema}.source_status.applied_at IS 'When it was applied last; NULL: never.';
COMMENT ON COLUMN {schema}.source_status.applied_by IS 'The person or runner that applied it.';
COMMENT ON COLUMN {schema}.source_status.jobs IS 'Number of its jobs that are not retired.';
COMMENT ON COLUMN {schema}.source_status.host IS 'The only host that may change the jobs of this source, because its name is the path of a file or package.module:app; NULL: it was named, and any host may.';
