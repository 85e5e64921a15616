COMMENT ON COLUMN {schema}.executions.error_code IS 'Why it failed, in one word; with SUCCESS: why the result could not be stored, or that it was changed.';
