-- An edit locks its jobs, then those that they require, then those that require them. No order of names can be kept,
-- because an UPDATE has locked its row before a trigger knows it. So edits of what chains depend on take turns.
-- Lock: the row edits of turns, waiting, before any row of jobs, if a job requires another one.
-- Without such a job there is nothing to order: the edits that make the first chain wait for each other along its
-- requirements, and these make no circle. For such edits, follow_upstreams locks what a job requires.
CREATE OR REPLACE FUNCTION {schema}_internal.order_edits() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.jobs j WHERE j.requires IS NOT NULL OR j.after IS NOT NULL) THEN
        PERFORM {schema}_internal.await_turn('edits');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.order_edits() IS 'If a job requires another one: waits until no other transaction edits plan_times, scopes, requirements or retirements of jobs, and keeps such edits out until the end of the transaction. Call it before a row of jobs is locked for such an edit.';

CREATE OR REPLACE FUNCTION {schema}_internal.jobs_order_edits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}_internal.order_edits();
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_order_edits() IS 'Runs before a statement that edits jobs. Calls order_edits.';
