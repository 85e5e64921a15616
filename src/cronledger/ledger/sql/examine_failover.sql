-- Returns the change of the timeline that was trusted as a failover and that nobody has confirmed: both timelines, and
-- when a check-in recorded it. No lock. Zero rows: there is none.
SELECT f.was, f.now, f.at FROM {schema}_internal.unconfirmed_failover() f
