ALTER TABLE {schema}.executions DROP COLUMN upgraded;
