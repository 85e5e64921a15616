-- settle_inputs for every dirty (job, scope) and every keyed retry: what a crash between a finish and
-- its settling left. Lock: schedules by key, SKIP LOCKED, then executions. One row: how many executions
-- were made.
SELECT {schema}_internal.settle_left_behind()
