-- Pauses a queue. Locks: those of the function. Always one row. False: it was paused already.
SELECT {schema}.pause_queue(%(queue)s::text, reason => %(reason)s::text, requested_by => %(requested_by)s::text) AS value
