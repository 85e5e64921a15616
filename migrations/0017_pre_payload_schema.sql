-- What the payload of a job looks like, for people and forms. NULL by default, which a definition leaves out
-- (10_jobs.sql), so that the history of a job without a schema and code that does not know it find no change.
ALTER TABLE {schema}.jobs ADD COLUMN payload_schema jsonb CHECK (jsonb_typeof(payload_schema) = 'object');
COMMENT ON COLUMN {schema}.jobs.payload_schema IS 'JSON Schema of the payload, for people and forms; nothing is validated by it in SQL. NULL: any JSON.';
