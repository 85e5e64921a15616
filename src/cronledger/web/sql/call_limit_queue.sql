-- Limits the RUNNING executions of a queue; NULL removes the limit. Locks: those of the function. Always one row: the
-- previous limit.
SELECT {schema}.limit_queue(%(queue)s::text, max_running => %(limit)s::integer,
                           requested_by => %(requested_by)s::text) AS value
