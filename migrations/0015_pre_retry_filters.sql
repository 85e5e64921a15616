-- Which failures are retried. NULL by default, which a definition leaves out (10_jobs.sql), so that the history of
-- a job without filters and code that does not know these columns find no change.
ALTER TABLE {schema}.jobs ADD COLUMN retry_on text[], ADD COLUMN never_retry_on text[];
COMMENT ON COLUMN {schema}.jobs.retry_on IS 'Only failures that match one of these items are retried: names of exceptions, exit statuses, HTTP statuses, SQLSTATEs, error codes. NULL or empty: all failures.';
COMMENT ON COLUMN {schema}.jobs.never_retry_on IS 'Failures that match one of these items are not retried, even if they match retry_on. NULL or empty: none.';
