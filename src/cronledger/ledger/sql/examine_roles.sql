-- The roles that lack, and what this one may not do that a replica does. No lock; one row.
SELECT current_user::text AS role,
       ARRAY(SELECT n FROM unnest(ARRAY['cronledger_viewer', 'cronledger_operator', 'cronledger_runner']) n
             WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = n)) AS missing,
       ARRAY(SELECT t.name || ': ' || t.privilege
             FROM (VALUES ('jobs', 'SELECT'), ('jobs', 'UPDATE'), ('job_revisions', 'SELECT'),
                          ('schedules', 'UPDATE'), ('executions', 'INSERT'), ('executions', 'UPDATE'),
                          ('skips', 'INSERT'), ('runners', 'INSERT'), ('runners', 'DELETE'))
                  AS t(name, privilege)
             WHERE NOT has_table_privilege('{schema}.' || t.name, t.privilege)
             UNION ALL
             SELECT p.proname || '(): EXECUTE' FROM pg_proc p
             WHERE p.pronamespace = '{schema}'::regnamespace
               AND p.proname IN ('claim_due', 'maintain_partitions', 'require_own_database', 'set_scopes')
               AND NOT has_function_privilege(p.oid, 'EXECUTE')
             ORDER BY 1) AS lacking
