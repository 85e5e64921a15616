CREATE OR REPLACE FUNCTION {schema}_internal.require_own_database() RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    home {schema}.identity;
    why  text;
BEGIN
    SELECT i.* INTO home FROM {schema}.identity i;
    IF home::text = current_setting('cronledger.own_database', true) THEN
        RETURN;
    END IF;
    why := {schema}_internal.other_database();
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'this is not the database in which the ledger was created: %', why
            USING HINT = 'If it was restored or cloned, the original may still be running. Nothing is planned or started here until SELECT * FROM {schema}.accept_database(true) (plan_times that were due until then do not run here) or accept_database(false) (the jobs'' catch_up decides).',
                  ERRCODE = 'CL005';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.require_own_database() IS 'Raises CL005 if this is not the ledger''s own database.';

-- A runner whose DSN leads to another ledger must not work there, however healthy that ledger is: the
-- database, the functions and even the jobs may be the same. Each transaction of a runner's step checks this.
CREATE OR REPLACE FUNCTION {schema}_internal.require_ledger(began_with uuid) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here {schema}.identity;
BEGIN
    SELECT i.* INTO here FROM {schema}.identity i;
    IF here.ledger_id <> began_with THEN
        RAISE EXCEPTION 'this is not the ledger that the runner began with: database % of the server with system identifier % holds ledger %, and the runner began with ledger %',
                        current_database(), (SELECT s.system_identifier FROM pg_control_system() s),
                        here.ledger_id, began_with
            USING DETAIL = concat('Ledger ', here.ledger_id, ', an accepted copy of ' || here.copy_of),
                  HINT = 'Correct the DSN so that it leads to the ledger with which the runner began, or restart the runner to use this ledger.',
                  ERRCODE = 'CL006';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.require_ledger(uuid) IS 'Raises CL006 unless this ledger has this id. The detail contains the id of this ledger, and of the original if it is an accepted copy. Does nothing if the argument is NULL, or if the ledger has no identity (require_own_database refuses such a ledger).';
