-- The turns of steps that one process at a time may run (table turns). Only the runner's role and the owner can lock
-- these rows. A turn ends with its transaction.
-- Lock: one row of turns, not waited for (take_turn), or waited for (await_turn).

CREATE OR REPLACE FUNCTION {schema}_internal.take_turn(of_step text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.turns t SET taken_at = {schema}.db_clock()
    WHERE t.step = (SELECT n.step FROM {schema}.turns n WHERE n.step = of_step FOR NO KEY UPDATE SKIP LOCKED);
    IF FOUND THEN
        RETURN true;
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM {schema}.turns t WHERE t.step = of_step) THEN false END;
END $$;
COMMENT ON FUNCTION {schema}_internal.take_turn(text) IS 'Takes the turn of a step until the end of the transaction, and returns whether it was free. NULL: the step has no row in turns. Does not wait.';

CREATE OR REPLACE FUNCTION {schema}_internal.await_turn(of_step text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.turns t WHERE t.step = of_step FOR NO KEY UPDATE;
END $$;
COMMENT ON FUNCTION {schema}_internal.await_turn(text) IS 'Takes the turn of a step until the end of the transaction. Waits until it is free (lock_timeout).';
