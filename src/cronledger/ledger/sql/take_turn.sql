-- Takes the turn of a step until the end of the transaction. False: another process has it, or this is another database
-- than the ledger's own. NULL: the step has no row yet (see add_turn).
-- Lock: the row of the step in turns, never waited for.
SELECT CASE WHEN {schema}_internal.other_database() IS NULL
            THEN {schema}_internal.take_turn(%(step)s) ELSE false END
