-- Pauses a job. Locks: those of the function. Always one row. False: the job was paused already.
SELECT {schema}.pause(
    %(job)s::text, reason => %(reason)s::text, requested_by => %(requested_by)s::text,
    until => coalesce(%(until)s::timestamptz, {schema}.db_now() + %(pause_for)s::interval)) AS value
