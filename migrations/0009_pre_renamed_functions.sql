-- Internal functions have other names or other parameters now. What calls them is replaced together with them.
DROP FUNCTION IF EXISTS {schema}.trigger(text, text, text, jsonb, boolean, text);
DROP FUNCTION IF EXISTS {schema}.date_at_commit(text, timestamptz, bigint, text[], text[], text[]);
DROP FUNCTION IF EXISTS {schema}.claim_due;
DROP FUNCTION IF EXISTS {schema}.take_again;
DROP FUNCTION IF EXISTS {schema}.choose_again;
DROP FUNCTION IF EXISTS {schema}.lock_due_again;
DROP FUNCTION IF EXISTS {schema}.lock_stale;
DROP FUNCTION IF EXISTS {schema}.try_claim_again;
DROP TYPE IF EXISTS {schema}.due_again;
DROP FUNCTION IF EXISTS {schema}.most_steals;
DROP FUNCTION IF EXISTS {schema}.name_refusal;
DROP FUNCTION IF EXISTS {schema}.clear_way;
DROP FUNCTION IF EXISTS {schema}.make_partition;
DROP FUNCTION IF EXISTS {schema}.make_partitions;
DROP FUNCTION IF EXISTS {schema}.make_partitions_for;
DROP FUNCTION IF EXISTS {schema}.make_partitions_that_lack;
DROP FUNCTION IF EXISTS {schema}.mark_pruned;
DROP FUNCTION IF EXISTS {schema}.unheld;
DROP FUNCTION IF EXISTS {schema}.answers_for;
DROP FUNCTION IF EXISTS {schema}.make_enqueued;
DROP FUNCTION IF EXISTS {schema}.merge_push;
DROP FUNCTION IF EXISTS {schema}.check_push;
DROP FUNCTION IF EXISTS {schema}.open_scope;
DROP FUNCTION IF EXISTS {schema}.is_behind;
DROP FUNCTION IF EXISTS {schema}.run_dirty_again;
DROP FUNCTION IF EXISTS {schema}.refusal;
DROP FUNCTION IF EXISTS {schema}.make_backfill;
DROP FUNCTION IF EXISTS {schema}.make_role;
DROP FUNCTION IF EXISTS {schema}.unknown_job;
DROP FUNCTION IF EXISTS {schema}.unknown_scope;
DROP FUNCTION IF EXISTS {schema}.unknown_execution;

-- A trigger calls this one.
DO $$ BEGIN
    IF to_regprocedure('{schema}.date_all()') IS NOT NULL THEN
        ALTER FUNCTION {schema}.date_all() RENAME TO date_undated;
    END IF;
END $$;
