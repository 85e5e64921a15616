-- The functions that `migrate` calls.
CREATE OR REPLACE FUNCTION {schema}.maintain_partitions() RETURNS void LANGUAGE sql AS '';
CREATE OR REPLACE FUNCTION {schema}.grant_roles() RETURNS SETOF text LANGUAGE sql AS 'SELECT NULL::text LIMIT 0';
CREATE OR REPLACE FUNCTION {schema}_internal.missing_grants() RETURNS TABLE (role text, statement text)
LANGUAGE sql AS 'SELECT NULL::text, NULL::text LIMIT 0';
