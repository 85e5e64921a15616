-- Returns the product, and the settings that our own transactions cannot override: the encoding of the
-- database, whether triggers fire, and the server settings with which a crash may lose what was committed.
-- Products that only resemble PostgreSQL lack some settings, so a missing one is NULL. No lock. One row.
-- Needs no schema.
SELECT version() AS version, current_setting('server_version_num')::integer AS version_number,
       current_database() AS database, current_setting('server_encoding', true) AS encoding,
       current_setting('session_replication_role', true) AS replication_role,
       ARRAY(SELECT n.name FROM unnest(ARRAY['fsync', 'full_page_writes']) n(name)
             WHERE current_setting(n.name, true) = 'off') AS not_durable
