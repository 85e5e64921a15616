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

-- Not on runners, whose rows are renewed every few seconds, and not on undated and
-- actions_in_progress, which are always empty.
-- Created only where it is missing, because creating a trigger waits for every writer of its table.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['queues', 'jobs', 'job_revisions', 'schedules', 'executions', 'skips',
                                'sources', 'identity', 'pruned', 'acceptances',
                                'verification_runs', 'rolled_up_hours', 'changed_hours', 'roll_up_state',
                                'operator_actions', 'tracked_states', 'raised_alerts', 'alert_progress',
                                'deadline_cursors', 'manual_deadlines', 'deadlines',
                                'deadline_breaches', 'deadline_months'] LOOP
        IF NOT EXISTS (SELECT FROM pg_trigger t
                       WHERE t.tgrelid = format('{schema}.%I', name)::regclass AND t.tgname = 'commit_durably') THEN
            EXECUTE format('CREATE TRIGGER commit_durably BEFORE INSERT OR UPDATE OR DELETE ON {schema}.%I
                            FOR EACH STATEMENT EXECUTE FUNCTION {schema}_internal.commit_durably()', name);
        END IF;
    END LOOP;
END $$;
COMMENT ON TRIGGER commit_durably ON {schema}.queues IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.jobs IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.job_revisions IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.schedules IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.executions IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.skips IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.sources IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.identity IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.pruned IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.acceptances IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.verification_runs IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.rolled_up_hours IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.changed_hours IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.roll_up_state IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.operator_actions IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.tracked_states IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.raised_alerts IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.alert_progress IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.deadline_cursors IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.manual_deadlines IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.deadlines IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.deadline_breaches IS 'Calls commit_durably().';
COMMENT ON TRIGGER commit_durably ON {schema}.deadline_months IS 'Calls commit_durably().';

CREATE OR REPLACE FUNCTION {schema}_internal.require_read_committed(caller text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    level text := current_setting('transaction_isolation');
BEGIN
    -- To PostgreSQL, READ UNCOMMITTED is READ COMMITTED.
    IF level NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION '%: transaction_isolation is %, under which its count of RUNNING executions could be out of date',
                caller, level
            USING HINT = 'Call it in a transaction that begins with BEGIN ISOLATION LEVEL READ COMMITTED, or set default_transaction_isolation to ''read committed'' for this role.',
                  ERRCODE = 'invalid_transaction_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.require_read_committed(text) IS 'Raises unless each statement of this transaction sees what was committed before it; caller: the function that needs it.';
