-- A job without a run_timeout may run for any length of time, as under cron.
ALTER TABLE {schema}.jobs ALTER COLUMN run_timeout DROP NOT NULL;
COMMENT ON COLUMN {schema}.jobs.run_timeout IS 'An attempt is stopped after this; NULL: never, while its lease is renewed.';
