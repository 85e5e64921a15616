-- Lists what keeps vacuum from removing dead rows of this database: transactions that are open for more
-- than five minutes, prepared transactions, and replication slots that hold a snapshot and have no reader.
-- To a role that is not a member of pg_read_all_stats it also reports that it cannot see the transactions
-- of others.
-- No lock. Zero rows: nothing does.
SELECT format('%s of %s, pid %s, %s', coalesce(nullif(a.application_name, ''), 'a session'),
              a.usename, a.pid, a.state) AS holder,
       {schema}.db_clock() - a.xact_start AS age,
       format('end it: SELECT pg_terminate_backend(%s)', a.pid) AS remedy
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
  AND a.xact_start < {schema}.db_clock() - interval '5 minutes'
UNION ALL
SELECT format('transactions of other roles are hidden from %s: %s sessions', current_user, count(*)), NULL,
       format('run it as a member of pg_read_all_stats: GRANT pg_read_all_stats TO %I', current_user)
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.backend_type IS NULL HAVING count(*) > 0
UNION ALL
SELECT format('prepared transaction %s of %s', p.gid, p.owner), {schema}.db_clock() - p.prepared,
       format('end it: ROLLBACK PREPARED %L', p.gid)
FROM pg_prepared_xacts p
WHERE p.database = current_database() AND p.prepared < {schema}.db_clock() - interval '5 minutes'
UNION ALL
SELECT format('replication slot %s', t.slot_name), NULL,
       format('start what reads it, or SELECT pg_drop_replication_slot(%L)', t.slot_name)
FROM pg_replication_slots t
WHERE NOT t.active AND (t.xmin IS NOT NULL OR t.catalog_xmin IS NOT NULL)
ORDER BY 2 DESC NULLS LAST
