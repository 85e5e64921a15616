CREATE OR REPLACE FUNCTION {schema}_internal.require_read_committed(caller text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    level text := current_setting('transaction_isolation');
BEGIN
    -- To PostgreSQL, READ UNCOMMITTED is READ COMMITTED.
    IF level NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION '%: transaction_isolation is %, so the rows that it reads could be out of date',
                caller, level
            USING HINT = 'Call it in a transaction that begins with BEGIN ISOLATION LEVEL READ COMMITTED, or set default_transaction_isolation to ''read committed'' for this role.',
                  ERRCODE = 'invalid_transaction_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.require_read_committed(text) IS 'Raises unless each statement of this transaction sees what was committed before it; caller: the function that needs it.';
