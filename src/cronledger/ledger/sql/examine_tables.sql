-- Lists tables of the ledger that vacuum or analyze neglects: autovacuum is disabled, or they were written
-- to and never analyzed, or they have more dead rows than live ones; only with more than %(rows)s such
-- rows. No lock. Zero rows: there are none.
SELECT c.relname::text AS name, o.disabled, s.n_live_tup AS live, s.n_dead_tup AS dead,
       s.last_analyze IS NULL AND s.last_autoanalyze IS NULL
           AND s.n_mod_since_analyze > %(rows)s AS unanalyzed,
       s.n_dead_tup > %(rows)s AND s.n_dead_tup > s.n_live_tup AS bloated
FROM pg_class c
JOIN pg_stat_all_tables s ON s.relid = c.oid
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM pg_options_to_table(c.reloptions) p
                   WHERE p.option_name = 'autovacuum_enabled' AND NOT p.option_value::boolean)
           AS disabled) o
WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'
  AND (o.disabled OR s.n_dead_tup > %(rows)s OR s.n_mod_since_analyze > %(rows)s)
ORDER BY 1
