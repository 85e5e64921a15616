-- People call functions and edit jobs in sessions of their own, where a server with LLVM compiles each statement
-- that looks expensive: an INSERT INTO jobs took 90 ms instead of 5. So each function that a session can enter runs
-- with jit = off, and the functions that it calls with it.
-- A function of LANGUAGE sql without options stays as it is: PostgreSQL inlines it, and plans depend on that. The
-- functions with SECURITY DEFINER or with options are never inlined, so the option costs them nothing.
DO $compilation$
DECLARE
    found regprocedure;
BEGIN
    FOR found IN
        SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace IN ('{schema}'::regnamespace, '{schema}_internal'::regnamespace)
          AND (p.prosecdef OR p.proconfig IS NOT NULL OR p.prorettype = 'trigger'::regtype
               OR l.lanname <> 'sql' AND p.pronamespace = '{schema}'::regnamespace)
          AND NOT 'jit=off' = ANY (coalesce(p.proconfig, '{}'))
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET jit = off', found);
    END LOOP;
END $compilation$;
