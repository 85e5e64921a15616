-- Takes the lock under which a source drops channels (alone), or names channels in notify (with others), so that of two
-- sources at once, one of which drops what the other one names, the later one is refused. Always one row.
-- Lock: a transaction-level advisory lock, waiting, after the jobs and schedules of the source.
SELECT CASE WHEN %(drops)s::boolean
            THEN pg_advisory_xact_lock(hashtextextended('{schema}.channels', 0))
            ELSE pg_advisory_xact_lock_shared(hashtextextended('{schema}.channels', 0)) END
