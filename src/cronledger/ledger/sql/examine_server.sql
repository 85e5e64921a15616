-- Returns the server as a replica finds it, and its room for connections: the least that server, database
-- and role allow. No lock. One row. Needs no schema. A role without pg_read_all_stats sees that other
-- backends exist, but not their type.
SELECT current_setting('server_version') AS version,
       current_setting('autovacuum')::boolean AS autovacuum,
       current_setting('track_counts')::boolean AS track_counts,
       pg_backend_pid() AS pid,
       pg_is_in_recovery() AS standby,
       least(current_setting('max_connections')::integer
                 - current_setting('superuser_reserved_connections')::integer - u.of_server,
             CASE WHEN d.datconnlimit >= 0 THEN d.datconnlimit - u.of_database END,
             CASE WHEN r.rolconnlimit >= 0 THEN r.rolconnlimit - u.of_role END) AS connections_left,
       u.of_server AS connections
FROM pg_database d, pg_roles r, (
    SELECT count(*)::integer AS of_server,
           (count(*) FILTER (WHERE a.datname = current_database()))::integer AS of_database,
           (count(*) FILTER (WHERE a.usename = current_user))::integer AS of_role
    FROM pg_stat_activity a
    WHERE coalesce(a.backend_type, 'client backend') = 'client backend' AND a.datname IS NOT NULL) u
WHERE d.datname = current_database() AND r.rolname = current_user
