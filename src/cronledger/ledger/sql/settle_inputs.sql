-- After a finish: success_watermark of these (job, scope) is recorded, what is still dirty after a
-- success runs again, retries whose key has a newer execution are given up.
-- Lock: schedules by key, SKIP LOCKED, then executions; in a transaction of its own. What was locked is
-- settled by who has it, or by the sweeper. One row: how many executions were made.
SELECT {schema}_internal.settle_inputs(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[])
