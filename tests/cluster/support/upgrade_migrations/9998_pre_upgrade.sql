ALTER TABLE {schema}.jobs ADD COLUMN upgraded text;
COMMENT ON COLUMN {schema}.jobs.upgraded IS 'A column of the upgrade test.';
ALTER TABLE {schema}.executions ADD COLUMN upgraded text;
COMMENT ON COLUMN {schema}.executions.upgraded IS 'A column of the upgrade test.';
