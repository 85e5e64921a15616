-- The executions of a restored dump have numbers of transactions that this server may not have reached. They are marked
-- once, and not with each round.
ALTER TABLE {schema}.roll_up_state ADD COLUMN restoring boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN {schema}.roll_up_state.restoring IS 'Whether the hours of a restored dump are being marked, also those of transactions with numbers that this server has not reached.';
-- Functions that have other arguments now.
DROP FUNCTION IF EXISTS {schema}_internal.observe_overdue();
DROP FUNCTION IF EXISTS {schema}_internal.observe_skips(timestamptz);
DROP FUNCTION IF EXISTS {schema}_internal.close_met_deadlines(text, text, text, timestamptz);
