-- Settles the input of these (job, scope) after a finish: records success_watermark, enqueues what is
-- still dirty after a success, and gives up retries whose key has a newer execution.
-- Lock: schedules by key, SKIP LOCKED, then executions; in a transaction of its own. The holder of a
-- locked schedule or the sweeper settles that one. One row: how many executions were created.
SELECT {schema}_internal.settle_inputs(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[])
