-- What a transaction of ours cannot override: the encoding of the database, whether triggers fire, and
-- which settings of the server allow a crash to lose what was committed. No lock; one row; needs no schema.
SELECT current_database() AS database, current_setting('server_encoding') AS encoding,
       current_setting('session_replication_role') AS replication_role,
       ARRAY(SELECT n.name FROM unnest(ARRAY['fsync', 'full_page_writes']) n(name)
             WHERE current_setting(n.name) = 'off') AS not_durable
