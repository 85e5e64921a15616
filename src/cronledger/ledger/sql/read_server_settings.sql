-- Returns the settings that our own transactions cannot override: the encoding of the database, whether
-- triggers fire, and the server settings with which a crash may lose what was committed. No lock. One row.
-- Needs no schema.
SELECT current_database() AS database, current_setting('server_encoding') AS encoding,
       current_setting('session_replication_role') AS replication_role,
       ARRAY(SELECT n.name FROM unnest(ARRAY['fsync', 'full_page_writes']) n(name)
             WHERE current_setting(n.name) = 'off') AS not_durable
