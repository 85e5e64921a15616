-- Pauses a job. Locks: those of the function. Always one row. False: the job was paused already.
SELECT {schema}.pause(
    %(job)s::text, reason => %(reason)s::text, until => %(until)s::timestamptz) AS value
