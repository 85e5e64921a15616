ALTER TABLE {schema}.books ADD COLUMN place text;
