-- Requirements of the promises on a transaction, independent of the settings of the role, the database and the
-- server.

-- Nothing that the ledger acknowledges may be lost in a crash, nor may an attempt whose start is lost run
-- beside the next one. The setting holds at COMMIT, for this transaction alone.
CREATE OR REPLACE FUNCTION {schema}_internal.commit_durably() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.commit_durably() IS 'Runs before a statement that writes to the ledger. Makes the COMMIT of its transaction durable.';
