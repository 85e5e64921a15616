CREATE OR REPLACE FUNCTION {schema}_internal.missing_grants()
RETURNS TABLE (role text, statement text)
-- Each start of a replica and each `migrate` reads this. Compiling it takes a hundred times as long.
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH decided AS MATERIALIZED (
        SELECT g.role, g.privilege, g.object, r.oid AS role_oid
        FROM {schema}.decided_grants() g LEFT JOIN pg_roles r ON r.rolname = g.role
    ), functions AS MATERIALIZED (
        SELECT f.oid, f.proname AS name, f.oid::regprocedure::text AS signature FROM pg_proc f
        WHERE f.pronamespace IN ('{schema}'::regnamespace, '{schema}_internal'::regnamespace)
    )
    SELECT m.role, m.statement FROM (
        SELECT DISTINCT d.role, format('CREATE ROLE %I NOLOGIN', d.role) AS statement,
               1 AS place
        FROM decided d WHERE d.role_oid IS NULL AND d.role <> 'PUBLIC'
        UNION ALL
        -- PostgreSQL lets everybody execute a new function.
        SELECT DISTINCT 'PUBLIC', format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f.signature), 2
        FROM functions f JOIN decided d ON d.object = f.name AND d.privilege = 'EXECUTE'
        WHERE d.role IS DISTINCT FROM 'PUBLIC' AND has_function_privilege('public', f.oid, 'EXECUTE')
        UNION ALL
        SELECT 'PUBLIC', format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', f.signature), 2
        FROM functions f JOIN decided d ON d.object = f.name AND d.role = 'PUBLIC'
        WHERE NOT has_function_privilege('public', f.oid, 'EXECUTE')
        UNION ALL
        SELECT DISTINCT d.role, format('GRANT USAGE ON SCHEMA %I TO %I', s.name, d.role), 3
        FROM decided d CROSS JOIN (VALUES ('{schema}'), ('{schema}_internal')) s(name)
        WHERE NOT has_schema_privilege(d.role_oid, s.name, 'USAGE')
        UNION ALL
        -- A function that PUBLIC may still execute shows here once that is revoked.
        SELECT d.role, format('GRANT EXECUTE ON FUNCTION %s TO %I', f.signature, d.role), 3
        FROM decided d JOIN functions f ON f.name = d.object
        WHERE d.privilege = 'EXECUTE' AND NOT has_function_privilege(d.role_oid, f.oid, 'EXECUTE')
        UNION ALL
        SELECT d.role, format('GRANT %s ON %s {schema}.%I TO %I', d.privilege,
                              CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname, d.role), 3
        FROM decided d
        JOIN pg_class c ON c.relnamespace = '{schema}'::regnamespace AND c.relname = d.object
        WHERE d.privilege <> 'EXECUTE' AND CASE c.relkind
            WHEN 'S' THEN NOT has_sequence_privilege(d.role_oid, c.oid, d.privilege)
            ELSE NOT has_table_privilege(d.role_oid, c.oid, d.privilege) END
    ) m
    ORDER BY m.place, m.role, m.statement
$$;
COMMENT ON FUNCTION {schema}_internal.missing_grants() IS 'Returns the statements that give the group roles the missing rights of decided_grants(), and the role of each statement.';

CREATE OR REPLACE FUNCTION {schema}_internal.create_role(role text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE ROLE %I NOLOGIN', role);
    EXECUTE format('COMMENT ON ROLE %I IS %L', role, CASE role
        WHEN 'cronledger_viewer' THEN 'May read the views of cronledger.'
        WHEN 'cronledger_operator' THEN 'May read the views of cronledger and call its operator functions.'
        ELSE 'May do what a replica of cronledger does; changes no structure.' END);
    RETURN true;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN
        RETURN true;  -- a migration of another database of this server was quicker
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role % does not exist, and % may not create roles', role, current_user
            USING HINT = format('Run CREATE ROLE %I NOLOGIN as a role that may create roles, then run `cronledger migrate` again.', role);
        RETURN false;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_role(text) IS 'Creates a group role. If the caller may not create roles, raises a NOTICE and returns false.';

CREATE OR REPLACE FUNCTION {schema}.grant_roles() RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner   oid := (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = '{schema}');
    missing record;
BEGIN
    IF NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION 'role % may not grant rights in the schema {schema}', current_user
            USING HINT = format('Run this as the owner of the schema, %s.', owner::regrole),
                  ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}_internal.missing_grants()) THEN
        RETURN;  -- without waiting for a migration that is under way
    END IF;
    -- The lock of `migrate`: two at once would write the same rows of the catalog.
    LOCK TABLE {schema}.schema_migrations IN SHARE ROW EXCLUSIVE MODE;
    -- The second pass grants what the first one made necessary: the rights of the roles that it created, and
    -- of the functions that it revoked from PUBLIC.
    FOR pass IN 1..2 LOOP
        FOR missing IN SELECT m.role, m.statement FROM {schema}_internal.missing_grants() m LOOP
            IF missing.statement NOT LIKE 'CREATE ROLE %' THEN
                EXECUTE missing.statement;
            ELSIF pass = 2 OR NOT {schema}_internal.create_role(missing.role) THEN
                CONTINUE;
            END IF;
            RETURN NEXT missing.statement;
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}.grant_roles() IS 'Creates the group roles if the caller may create roles, and grants them their rights in the schema as it is now. Returns the statements that it ran. The owner of the schema may call it at any time.';
