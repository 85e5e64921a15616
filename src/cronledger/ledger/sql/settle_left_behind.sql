-- Calls settle_inputs for every dirty (job, scope) and every keyed retry, because a crash between a finish
-- and its settling may have left some. Lock: schedules by key, SKIP LOCKED, then executions. One row: how
-- many executions were created.
SELECT {schema}_internal.settle_left_behind()
