CREATE OR REPLACE FUNCTION {schema}.put(title text, place text) RETURNS void
LANGUAGE sql AS 'INSERT INTO {schema}.books (title, place) VALUES (title, place)';
