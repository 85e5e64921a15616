CREATE OR REPLACE FUNCTION {schema}_internal.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: % is refused, because rows are only added to the audit trail', TG_TABLE_NAME, TG_OP
        USING HINT = 'Read it through the view {schema}.audit. Its rows are kept as long as job_revisions.',
              ERRCODE = 'restrict_violation';
END $$;
COMMENT ON FUNCTION {schema}_internal.refuse_change() IS 'Runs before a change or removal of rows of operator_actions, and raises.';
