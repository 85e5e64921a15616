-- Locks the table jobs until the end of the transaction, so that no job is written by others. An apply of jobs that require
-- others locks it first, because the triggers of jobs lock the required jobs in any order.
-- Lock: jobs in SHARE ROW EXCLUSIVE mode. Claims are not kept out. No rows.
LOCK TABLE {schema}.jobs IN SHARE ROW EXCLUSIVE MODE
