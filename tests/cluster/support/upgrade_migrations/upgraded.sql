CREATE OR REPLACE VIEW {schema}.upgraded AS
SELECT name, upgraded FROM {schema}.jobs;
COMMENT ON VIEW {schema}.upgraded IS 'A view of the upgrade test.';
