-- Returns the group roles that are missing, the statements that would grant the missing rights of the
-- others, whether this role is a member of those
-- that read, and the rights that it would need to be a replica. No lock. One row.
WITH missing AS MATERIALIZED (SELECT m.role, m.statement FROM {schema}_internal.missing_grants() m)
SELECT current_user::text AS role,
       (SELECT n.nspowner::regrole::text FROM pg_namespace n WHERE n.nspname = '{schema}') AS owner,
       ARRAY(SELECT m.role FROM missing m WHERE starts_with(m.statement, 'CREATE ROLE ') ORDER BY 1) AS missing,
       ARRAY(SELECT m.statement FROM missing m WHERE NOT starts_with(m.statement, 'CREATE ROLE ')) AS ungranted,
       EXISTS (SELECT FROM pg_roles g WHERE g.rolname IN ('cronledger_viewer', 'cronledger_operator')
               AND pg_has_role(g.oid, 'USAGE')) AS reads,
       ARRAY(SELECT t.name || ': ' || t.privilege
             FROM (VALUES ('jobs', 'SELECT'), ('jobs', 'UPDATE'), ('job_revisions', 'SELECT'),
                          ('schedules', 'UPDATE'), ('executions', 'INSERT'), ('executions', 'UPDATE'),
                          ('skips', 'INSERT'), ('runners', 'INSERT'), ('runners', 'DELETE'))
                  AS t(name, privilege)
             WHERE NOT has_table_privilege('{schema}.' || t.name, t.privilege)
             UNION ALL
             SELECT p.proname || '(): EXECUTE' FROM pg_proc p
             WHERE p.pronamespace IN ('{schema}'::regnamespace, '{schema}_internal'::regnamespace)
               AND p.proname IN ('claim_due', 'maintain_partitions', 'require_own_database', 'set_scopes')
               AND NOT has_function_privilege(p.oid, 'EXECUTE')
             ORDER BY 1) AS lacking
